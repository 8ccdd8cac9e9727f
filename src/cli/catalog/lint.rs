//! `linesman catalog lint`: reads a catalog's files and prints what would fail in a cluster.

mod rules;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::cli::exit::{Code, Failure};
use crate::cli::output::{Column, Format, Output, counted, document, emit, list, progress_line};
use rules::Finding;

const EXAMPLES: &str = "\
It finds: YAML that does not parse, kustomizations and Flux Kustomizations that name files which are not
there, files that no kustomization names, objects that a cluster gets twice, objects of both engines for one
cluster, Applications whose URL of the catalog has a slip in it, names that no API server takes, ConfigMaps
and Secrets whose data are no map of texts, Secrets in clear text, directories below clusters/ that are
neither NAME nor NAME.ENGINE, YAML of more than 4 MiB and symbolic links, which it does not read. Ends with 1
where it finds something.

It asks nobody: fields of other kinds, what patches and charts come to, and whether an image or a CRD is there
it does not know. The API server does: kubectl apply --dry-run=server -k DIRECTORY.

Examples:
  linesman catalog lint
  linesman catalog lint catalog -o json";

/// A catalog larger than this is a mistake, such as a clone with build output in it.
const MAX_FILES: usize = 20_000;
/// More of YAML in one file is not parsed, and said so.
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
    let mut catalog = Catalog::default();
    if args.directory.is_dir() {
        collect(&args.directory, &args.directory, &mut catalog)?;
    }
    let Catalog { files, unread } = catalog;
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
    let mut findings = rules::lint(&files);
    findings.extend(unread);
    findings.sort();
    match args.output.output {
        format @ (Format::Json | Format::Yaml) => emit(&document(format, &findings)?)?,
        // What is said of none stands below.
        _ if findings.is_empty() => {}
        format => list(format, &findings, &COLUMNS, |f| f.file.clone(), "")?,
    }
    if findings.is_empty() {
        let files = counted(files.len(), "file");
        progress_line(&format!("{files}, nothing to mend"));
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

#[derive(Default)]
struct Catalog {
    /// By name; empty where the name is enough.
    files: BTreeMap<String, String>,
    /// What is too long to be read, and links.
    unread: Vec<Finding>,
}

/// Reads YAML files below `directory`; of all others the name is enough.
fn collect(root: &Path, directory: &Path, catalog: &mut Catalog) -> Result<()> {
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
            collect(root, &path, catalog)?;
            continue;
        }
        let name = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .display()
            .to_string();
        let yaml = path.extension().is_some_and(|e| e == "yaml" || e == "yml");
        if kind.is_symlink() {
            catalog.unread.extend(link(root, &path, &name, yaml));
        }
        let text = if kind.is_file() && yaml {
            let text = read(&path).with_context(|| format!("read {}", path.display()))?;
            text.unwrap_or_else(|size| {
                catalog.unread.push(too_long(&name, size));
                String::new()
            })
        } else {
            String::new()
        };
        catalog.files.insert(name, text);
        if catalog.files.len() > MAX_FILES {
            let message = format!("{} holds more than {MAX_FILES} files", root.display());
            return Err(Failure::new(Code::Usage, message, "name the catalog's directory").into());
        }
    }
    Ok(())
}

/// What becomes of a symbolic link in a cluster. Flux leaves all of them out of what its source-controller hands on; Argo CD follows
/// relative ones within the repository, and takes nothing from one with any other.
fn link(root: &Path, path: &Path, name: &str, yaml: bool) -> Option<Finding> {
    let (written, root) = (fs::read_link(path).ok()?, root.canonicalize().ok()?);
    let target = path.canonicalize();
    let within = written.is_relative() && target.as_ref().is_ok_and(|t| t.starts_with(&root));
    let message = if target.is_err() {
        "is a symbolic link to what is not there"
    } else if !within {
        "is a symbolic link that is absolute or leaves the catalog: Flux leaves it out, and Argo CD takes nothing from such a repository"
    } else if yaml || target.is_ok_and(|target| target.is_dir()) {
        "is a symbolic link and was not checked: Flux leaves it out"
    } else {
        return None;
    };
    Some(Finding {
        file: name.to_owned(),
        message: message.to_owned(),
        fix: "name the file itself in a kustomization.yaml, or put a copy there".to_owned(),
    })
}

/// A file's text, or its size where that is too much.
fn read(path: &Path) -> io::Result<Result<String, u64>> {
    let file = fs::File::open(path)?;
    let size = file.metadata()?.len();
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    let size = size.max(bytes.len() as u64);
    if size > MAX_FILE {
        return Ok(Err(size));
    }
    Ok(Ok(String::from_utf8_lossy(&bytes).into_owned()))
}

fn too_long(name: &str, size: u64) -> Finding {
    Finding {
        file: name.to_owned(),
        message: format!(
            "has {size} bytes and was not checked: no more than {MAX_FILE} of a file are read"
        ),
        fix: "split it into smaller files".to_owned(),
    }
}
