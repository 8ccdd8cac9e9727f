//! Other people's programs, unchanged: the Python client, the JavaScript client, and client-go with its informers. They are
//! fetched from their registries at the first run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ready;
use crate::support::place::{root, run, var};
use crate::support::world::{self, World};

mod whole;

/// The version that is known to work; its own dependencies are the newest.
const PYTHON_CLIENT: &str = "kubernetes==37.0.2";

/// Programs outlive the tests' own directory.
fn kept() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// A virtual environment with the client.
fn python() -> PathBuf {
    let venv = kept().join("python-client");
    let made = venv.join(PYTHON_CLIENT);
    if !made.exists() {
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&venv));
        let cache = var("LINESMAN_CACHE").map_or_else(
            || PathBuf::from(var("HOME").unwrap()).join(".cache/linesman"),
            PathBuf::from,
        );
        let mut pip = Command::new(venv.join("bin/pip"));
        pip.args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            PYTHON_CLIENT,
        ]);
        run(pip.arg("--cache-dir").arg(cache.join("pip")));
        fs::write(made, "").unwrap();
    }
    venv.join("bin/python")
}

/// Where the modules of the JavaScript client are.
fn javascript() -> String {
    let mut install = Command::new(root().join("tests/modules"));
    let modules = run(install.arg(clients().join("javascript")));
    modules.trim().to_owned()
}

fn clients() -> PathBuf {
    root().join("tests/cluster/clients")
}

fn informer() -> PathBuf {
    let program = kept().join("informer");
    let mut build = Command::new("go");
    build
        .args([
            "build",
            "-mod=readonly",
            "-trimpath",
            "-buildvcs=false",
            "-o",
        ])
        .arg(&program)
        .arg(".");
    build.current_dir(clients().join("informer"));
    build
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env("GOFLAGS", "");
    run(&mut build);
    program
}

/// The program against the line's kubeconfig.
fn client(world: &World, program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    world.hub.environment(&mut command);
    command
        .args(args)
        .env("KUBECONFIG", world.line_kubeconfig())
        .env("NO_PROXY", "*")
        .current_dir(clients());
    command
}

/// What it says in the end.
fn works(world: &World, program: &Path, args: &[&str]) -> String {
    run(&mut client(world, program, args))
}

#[test]
#[ignore = "needs a real cluster: make test"]
fn the_python_client_works_unchanged() {
    let world = world::adopted();
    ready(&world);
    let said = works(&world, &python(), &["client.py"]);
    assert_eq!(said, "python: ok\n");
}

#[test]
#[ignore = "needs a real cluster: make test"]
fn the_javascript_client_works_unchanged() {
    let world = world::adopted();
    ready(&world);
    let said = works(
        &world,
        Path::new("node"),
        &["javascript/client.mjs", &javascript()],
    );
    assert_eq!(said, "javascript: ok\n");
}

#[test]
#[ignore = "needs a real cluster: make test"]
fn an_informer_of_client_go_works_unchanged() {
    let world = world::adopted();
    ready(&world);
    let said = works(&world, &informer(), &[]);
    assert_eq!(said, "go: ok\n");
}
