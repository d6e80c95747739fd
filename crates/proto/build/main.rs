//! Compiles `proto/` to messages, services, the descriptor set for reflection, the checks of requests (`limits.rs`), the
//! names of RPCs and the ids in requests (`rpc.rs`), and the names of the fields of oneofs (`oneofs.rs`). An RPC without the `access`
//! option fails the build, and so does a field of a request without a limit.
#![expect(clippy::print_stdout, reason = "instructions for cargo")]

mod limits;
mod oneofs;
mod rpc;

use std::{env, fs, path::PathBuf};

use protox::prost_reflect::DescriptorPool;

const ROOT: &str = "../../proto";

#[expect(clippy::disallowed_methods, reason = "cargo passes OUT_DIR as a variable")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={ROOT}");
    println!("cargo:rerun-if-changed=build");
    let mut files: Vec<PathBuf> = fs::read_dir(format!("{ROOT}/contextd/v1"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_, std::io::Error>>()?;
    files.sort();
    let mut compiler = protox::Compiler::new([ROOT])?;
    // Includes the comments, which clients of reflection display.
    compiler.include_source_info(true).include_imports(true).open_files(&files)?;
    every_rpc_declares_its_access(&compiler.descriptor_pool())?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("limits.rs"), limits::generate(&compiler.descriptor_pool())?)?;
    fs::write(out.join("oneofs.rs"), oneofs::generate(&compiler.descriptor_pool())?)?;
    fs::write(out.join("rpc.rs"), rpc::names(&compiler.descriptor_pool()))?;
    fs::write(out.join("ids.rs"), rpc::ids(&compiler.descriptor_pool()))?;
    fs::write(
        out.join("contextd_descriptor.bin"),
        compiler.encode_file_descriptor_set(), // including our options
    )?;
    let mut files = compiler.file_descriptor_set();
    // The server refuses deprecated fields by name, so warnings about them would be noise.
    let messages = files.file.iter_mut().flat_map(|file| &mut file.message_type);
    for field in messages.flat_map(|message| &mut message.field) {
        if let Some(options) = &mut field.options {
            options.deprecated = None;
        }
    }
    // Maps are ordered, so that the same request always has the same bytes (and hash).
    tonic_prost_build::configure().btree_map(".").codec_path("crate::codec::Codec").compile_fds(files)?;
    Ok(())
}

/// Returns an error if an RPC has no `access` option. The server would reject every call of such an RPC.
fn every_rpc_declares_its_access(pool: &DescriptorPool) -> Result<(), String> {
    const OPTION: &str = "contextd.v1.access";
    let option = pool.get_extension_by_name(OPTION).ok_or_else(|| format!("proto/ has no option {OPTION}"))?;
    for service in pool.services().filter(|it| it.package_name() == "contextd.v1") {
        for method in service.methods() {
            let access = method.options().get_extension(&option).as_enum_number();
            if access.is_none_or(|access| access == 0) {
                return Err(format!("{} has no option {OPTION}", method.full_name()));
            }
        }
    }
    Ok(())
}
