//! `linesman catalog init`: the catalog that a new hub starts with, as files.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::cli::exit::{Code, Failure};
use crate::cli::output::progress_line;
use crate::hub::catalog;

const EXAMPLES: &str = "\
The hub's built-in catalog starts with these files already: 'linesman catalog clone' gets them. This verb is
for a look at them without a hub, and for a tree to try 'linesman catalog lint' on.

Examples:
  linesman catalog init catalog && cd catalog && git init -b main && git add . && git commit -m 'Start'";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// A directory that is new or empty
    directory: PathBuf,
}

pub(in crate::cli) fn run(args: &Args) -> Result<()> {
    let directory = &args.directory;
    let taken = fs::read_dir(directory)
        .is_ok_and(|mut entries| entries.any(|e| e.is_ok_and(|e| e.file_name() != ".git")));
    if taken {
        return Err(Failure::new(
            Code::Conflict,
            format!("{} is not empty; nothing was written", directory.display()),
            "name a new directory",
        )
        .into());
    }
    let files = catalog::template();
    for (name, content) in &files {
        let path = directory.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
        }
        fs::write(&path, content).with_context(|| format!("write {}", path.display()))?;
    }
    progress_line(&format!(
        "{} files written; start with {}",
        files.len(),
        directory.join("README.md").display()
    ));
    Ok(())
}
