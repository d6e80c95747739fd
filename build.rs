//! Rebuilds the program when a migration changes. Migrations are embedded by a macro, so cargo does not track them.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
