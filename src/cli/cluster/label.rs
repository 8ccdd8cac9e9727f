//! `linesman cluster label`: the labels by which grants and rollouts choose a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use anyhow::Result;

use super::add::label;
use crate::cli::connect::Connect;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{Format, Output, document, emit, progress_line};
use crate::wire::api::{LabelsRequest, LabelsView};
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
Labels are the hub's; the cluster and the catalog are not touched. A grant for clusters by their labels takes
a cluster in or lets it go at once: what runs there by a grant that it is not among any more ends within two
seconds. Needs the role access, and admin where one of your own grants would take the cluster in.

Examples:
  linesman cluster label eu1 env=prod team=shop
  linesman cluster label eu1 env=dev --overwrite     # env has another value
  linesman cluster label eu1 frozen-                 # remove it";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    /// KEY=VALUE sets a label, KEY- removes it
    #[arg(required = true, value_name = "KEY=VALUE|KEY-")]
    changes: Vec<Change>,
    /// Give keys that have another value this one
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Set(String, String),
    Remove(String),
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (label(text), text.strip_suffix('-')) {
            (Ok((key, value)), _) => Ok(Self::Set(key, value)),
            (Err(_), Some(key)) if !key.is_empty() && !key.contains('=') => {
                Ok(Self::Remove(key.to_owned()))
            }
            _ => Err("write KEY=VALUE, or KEY- to remove it".to_owned()),
        }
    }
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let asked = request(args.changes, args.overwrite)?;
    let client = args.connect.client().await?;
    let told = client.label(&args.name, &asked).await?;
    match args.output.output {
        format @ (Format::Json | Format::Yaml) => emit(&document(format, &told)?)?,
        Format::Name => emit(&format!("{}\n", args.name))?,
        Format::Table | Format::Wide => {}
    }
    progress_line(&words(&args.name, &told));
    Ok(())
}

fn request(changes: Vec<Change>, overwrite: bool) -> Result<LabelsRequest, Failure> {
    let (mut set, mut remove) = (BTreeMap::new(), BTreeSet::new());
    for change in changes {
        match change {
            Change::Set(key, value) => {
                let twice = format!("label '{key}' is given two values");
                if set.insert(key, value).is_some() {
                    return Err(Failure::new(Code::Usage, twice, "choose one"));
                }
            }
            Change::Remove(key) => {
                remove.insert(key);
            }
        }
    }
    Ok(LabelsRequest {
        set,
        remove,
        overwrite,
    })
}

fn words(name: &ClusterName, told: &LabelsView) -> String {
    if told.labels.is_empty() {
        return format!("cluster {name} has no labels now");
    }
    let labels = told
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"));
    let labels: Vec<String> = labels.collect();
    format!("cluster {name} has now: {}", labels.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(changes: &[&str]) -> Result<LabelsRequest, String> {
        let changes: Result<Vec<Change>, String> =
            changes.iter().map(|text| text.parse()).collect();
        request(changes?, false).map_err(|failure| failure.to_string())
    }

    #[test]
    fn labels_are_written_as_for_kubectl() {
        let request = asked(&["env=prod", "ring=", "frozen-", "a-b=c-"]).unwrap();
        let set = [("a-b", "c-"), ("env", "prod"), ("ring", "")];
        assert_eq!(
            request,
            LabelsRequest {
                set: set.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
                remove: ["frozen".to_owned()].into(),
                overwrite: false,
            }
        );
        for wrong in ["env", "=x", "-", ""] {
            let told = asked(&[wrong]).unwrap_err();
            assert_eq!(told, "write KEY=VALUE, or KEY- to remove it", "{wrong}");
        }
        let twice = asked(&["env=a", "env=b"]).unwrap_err();
        assert_eq!(twice, "label 'env' is given two values");
    }
}
