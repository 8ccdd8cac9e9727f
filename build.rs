//! Links the program so that it takes little memory.
//!
//! A static position-independent program relocates itself at its start and so reads its whole relocation table, 1.8 MB of
//! it, which then counts as resident. As relative relocations in the form `DT_RELR` it has 20 KB. The C library has to know that
//! form (glibc 2.36); an older one would leave the program without any relocation, so it is asked first.
//!
//! The functions that an agent enters are put beside one another (docs/decisions/0034-the-order-of-functions.md): the kernel maps a program 64 KiB at
//! a time, and they lie in nearly every such piece where the linker has its own way. Names that `src/main.order` has and the program has
//! not, and the other way round, cost memory and nothing else.

#![expect(
    clippy::disallowed_methods,
    reason = "Cargo tells a build script its target in the environment"
)]

use std::env;
use std::path::Path;
use std::process::Command;

const ORDER: &str = "src/main.order";
/// A file for the linker's map of the program: `tests/run order` reads the names of functions there, for the program itself has none.
const MAP: &str = "LINESMAN_LINK_MAP";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={ORDER}");
    println!("cargo::rerun-if-env-changed={MAP}");
    if ["OS=linux", "ENV=gnu", "ARCH=x86_64"].map(target_is) != [true; 3] {
        return;
    }
    if c_library() >= Some((2, 36)) {
        link("-z,pack-relative-relocs");
    }
    // The names are those of the profile `release`, the one that has this level.
    let order = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join(ORDER);
    if env::var("OPT_LEVEL").is_ok_and(|level| level == "s") && order.is_file() && links_with_lld()
    {
        link(&format!("--symbol-ordering-file={}", order.display()));
        link("--no-warn-symbol-ordering");
        if let Ok(map) = env::var(MAP) {
            link(&format!("-Map={map}"));
        }
    }
}

fn link(argument: &str) {
    println!("cargo::rustc-link-arg-bins=-Wl,{argument}");
}

fn target_is(pair: &str) -> bool {
    pair.split_once('=').is_some_and(|(key, value)| {
        env::var(format!("CARGO_CFG_TARGET_{key}")).is_ok_and(|is| is == value)
    })
}

/// The version of this machine's glibc, which is the one that is linked.
fn c_library() -> Option<(u32, u32)> {
    let text = output(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Whether rustc links with the lld that comes with it, as it does since 1.90 where it has one and nobody chose another linker.
fn links_with_lld() -> bool {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let chosen = ["linker", "fuse-ld"]
        .iter()
        .any(|word| flags.contains(word));
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let root = output(Command::new(rustc).args(["--print", "sysroot"])).unwrap_or_default();
    let lld = "lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld/ld.lld";
    !chosen && env::var("RUSTC_LINKER").is_err() && Path::new(root.trim()).join(lld).is_file()
}

fn output(command: &mut Command) -> Option<String> {
    let asked = command.output().ok()?;
    String::from_utf8(asked.stdout).ok()
}
