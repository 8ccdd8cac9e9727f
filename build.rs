//! Links the program so that it starts with little memory.
//!
//! A static position-independent program relocates itself at its start and so reads its whole relocation table, 1.8 MB of
//! it, which then counts as resident. As relative relocations in the form `DT_RELR` it has 20 KB. The C library has to know that
//! form (glibc 2.36); an older one would leave the program without any relocation, so it is asked first.

#![expect(
    clippy::disallowed_methods,
    reason = "Cargo tells a build script its target in the environment"
)]

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if ["OS=linux", "ENV=gnu", "ARCH=x86_64"].map(target_is) == [true; 3]
        && c_library() >= Some((2, 36))
    {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

fn target_is(pair: &str) -> bool {
    pair.split_once('=').is_some_and(|(key, value)| {
        env::var(format!("CARGO_CFG_TARGET_{key}")).is_ok_and(|is| is == value)
    })
}

/// The version of this machine's glibc, which is the one that is linked.
fn c_library() -> Option<(u32, u32)> {
    let asked = Command::new("getconf")
        .arg("GNU_LIBC_VERSION")
        .output()
        .ok()?;
    let text = String::from_utf8(asked.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
