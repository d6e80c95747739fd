//! Compiles `proto/`, and sees to it that a new migration is embedded: messages, services and the
//! descriptor set for reflection. An RPC that does not say what access it takes fails the build.
use std::{env, fs, path::PathBuf};

use protox::prost_reflect::DescriptorPool;

#[expect(
    clippy::disallowed_methods,
    reason = "this is how cargo talks to build scripts"
)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rerun-if-changed=migrations"); // embedded by a macro, which cargo does not see
    let mut files: Vec<PathBuf> = fs::read_dir("proto/contextd/v1")?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_, std::io::Error>>()?;
    files.sort();
    let mut compiler = protox::Compiler::new(["proto"])?;
    // With comments, which tools show by reflection.
    compiler
        .include_source_info(true)
        .include_imports(true)
        .open_files(&files)?;
    every_rpc_declares_its_access(&compiler.descriptor_pool())?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(
        out.join("contextd_descriptor.bin"),
        compiler.encode_file_descriptor_set(), // with the options that are ours
    )?;
    let mut files = compiler.file_descriptor_set();
    // Clients are warned of deprecated fields. The server names them where it refuses them.
    let messages = files
        .file
        .iter_mut()
        .flat_map(|file| &mut file.message_type);
    for field in messages.flat_map(|message| &mut message.field) {
        if let Some(options) = &mut field.options {
            options.deprecated = None;
        }
    }
    // Maps are ordered, so that the same request always has the same bytes (and hash).
    tonic_prost_build::configure()
        .btree_map(".")
        .codec_path("crate::pb::codec::Codec")
        .compile_fds(files)?;
    Ok(())
}

/// The server refuses an RPC without the option to everybody; here it is found before it is shipped.
fn every_rpc_declares_its_access(pool: &DescriptorPool) -> Result<(), String> {
    const OPTION: &str = "contextd.v1.access";
    let option = pool
        .get_extension_by_name(OPTION)
        .ok_or_else(|| format!("proto/ has no option {OPTION}"))?;
    for service in pool
        .services()
        .filter(|it| it.package_name() == "contextd.v1")
    {
        for method in service.methods() {
            let access = method.options().get_extension(&option).as_enum_number();
            if access.is_none_or(|access| access == 0) {
                return Err(format!("{} has no option {OPTION}", method.full_name()));
            }
        }
    }
    Ok(())
}
