//! `linesman catalog lint`: reads a catalog's files and prints what would fail in a cluster.

mod rules;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::cli::exit::{Code, Failure};
use crate::cli::output::{Column, Format, Output, document, emit, list, progress_line};
use rules::Finding;

const EXAMPLES: &str = "\
It finds: YAML that does not parse, kustomizations and Flux Kustomizations that name files which are not there,
files that no kustomization names, objects that a cluster gets twice, Secrets in clear text, directories below
clusters/ that are no cluster names. Ends with 1 where it finds something.

Examples:
  linesman catalog lint
  linesman catalog lint catalog -o json";

/// A catalog larger than this is a mistake, such as a clone with build output in it.
const MAX_FILES: usize = 20_000;
const MAX_FILE: u64 = 4 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The catalog's directory
    #[arg(default_value = ".")]
    directory: PathBuf,
    #[command(flatten)]
    output: Output,
}

const COLUMNS: [Column<Finding>; 3] = [
    Column::new("FILE", |f, _| f.file.clone()),
    Column::new("FINDING", |f, _| f.message.clone()),
    Column::new("FIX", |f, _| f.fix.clone()),
];

pub(in crate::cli) fn run(args: &Args) -> Result<()> {
    let mut files = BTreeMap::new();
    if args.directory.is_dir() {
        collect(&args.directory, &args.directory, &mut files)?;
    }
    if !files.keys().any(|f| f.starts_with("clusters/")) {
        return Err(Failure::new(
            Code::NotFound,
            format!(
                "{} holds no directory 'clusters', so it is no catalog",
                args.directory.display()
            ),
            "name the catalog's directory, or start one: linesman catalog init DIR",
        )
        .into());
    }
    let findings = rules::lint(&files);
    match args.output.output {
        format @ (Format::Json | Format::Yaml) => emit(&document(format, &findings)?)?,
        format => list(format, &findings, &COLUMNS, |f| f.file.clone(), "")?,
    }
    if findings.is_empty() {
        progress_line(&format!("{} files, nothing to mend", files.len()));
        return Ok(());
    }
    let count = findings.len();
    Err(Failure::new(
        Code::Failed,
        format!("findings: {count}"),
        "mend them before the push",
    )
    .into())
}

/// Reads YAML files below `directory`; of all others the name is enough.
fn collect(root: &Path, directory: &Path, files: &mut BTreeMap<String, String>) -> Result<()> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("read {}", directory.display()))?;
        let (path, kind) = (
            entry.path(),
            entry.file_type().context("read a file's type")?,
        );
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if kind.is_dir() {
            collect(root, &path, files)?;
            continue;
        }
        let name = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .display()
            .to_string();
        let yaml = path.extension().is_some_and(|e| e == "yaml" || e == "yml");
        let small = entry.metadata().is_ok_and(|m| m.len() <= MAX_FILE);
        let text = if kind.is_file() && yaml && small {
            let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            String::from_utf8_lossy(&bytes).into_owned()
        } else {
            String::new()
        };
        files.insert(name, text);
        if files.len() > MAX_FILES {
            let message = format!("{} holds more than {MAX_FILES} files", root.display());
            return Err(Failure::new(Code::Usage, message, "name the catalog's directory").into());
        }
    }
    Ok(())
}
