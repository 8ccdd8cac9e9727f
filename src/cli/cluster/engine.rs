//! `linesman cluster engine`: which engine a cluster runs, and how another one takes its place.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::Engine;
use crate::cli::connect::Connect;
use crate::cli::duration;
use crate::cli::engine::follow;
use crate::cli::output::{Format, Output, document, emit, progress_line, rows_text};
use crate::wire::api::{EngineKind, EngineRequest, ToldCluster, ToldCondition};
use crate::wire::id::{ClusterName, Digest};
use crate::wire::report::{ConditionType, Status};
use crate::wire::word::Word;

const EXAMPLES: &str = "\
Another engine is refused unless --replace says so, and what it is to follow is in the catalog: at --path,
else at clusters/NAME.ENGINE, or where the cluster looks now if both engines can read that. Commit there what
makes the other engine apply the same objects.

The hand-over deletes and restarts no workload. The agent takes the old engine's rights, ends its controllers
and takes the pruning finalizers from its sync objects; then it installs the other engine, with pruning off,
and waits until that has answered and has applied the catalog without a failure. Only then are the objects of
the old install removed, and pruning is on again. Namespaces and CRDs stay. Where the other engine does not
work within --within, the old one comes back, and 'linesman cluster show' tells why; the same command tries
again. With --replace, the engine that the cluster has is set anew, too: that ends an attempt. It follows what
it did, and another --path is refused: led there, it would prune what that lacks. Versions of the same engine
change with 'linesman engine set'.

Examples:
  linesman cluster engine eu1
  linesman cluster engine eu1 argocd --replace --wait
  linesman cluster engine eu1 flux --replace --version 2.9.5 --path clusters/eu1";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    /// The engine that it shall have
    #[arg(value_enum)]
    engine: Option<Engine>,
    /// Let it take the other engine's place
    #[arg(long, requires = "engine")]
    replace: bool,
    /// Its version; without it, the newest that is imported
    #[arg(long, value_name = "VERSION", requires = "replace")]
    version: Option<String>,
    /// One of several bundles of a version, sha256:…
    #[arg(long, value_name = "DIGEST", requires = "replace")]
    bundle: Option<Digest>,
    /// The directory of the catalog that it is to follow, where the other one is in force
    #[arg(long, value_name = "DIRECTORY", requires = "replace")]
    path: Option<String>,
    /// How long it has to work, before the previous engine comes back: 30s to 1h
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration::parse)]
    within: Duration,
    /// Then wait until it works and the other one is gone: 15m at most, or TIME
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "15m", value_parser = duration::parse, requires = "replace")]
    wait: Option<Duration>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// What a program reads.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    cluster: ClusterName,
    engine: Word<EngineKind>,
    /// This and the path are empty where another engine is wished: the hub knows them of that one.
    version: String,
    path: String,
    /// Another engine than the one in force: a hand-over is under way, or was taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    wished: Option<Wished>,
    /// Of a hand-over: its number, as condition `EngineCurrent` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<u64>,
    /// Whether the hand-over was waited for to its end. Where none was asked for: that no change is under way or was taken back.
    done: bool,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Wished {
    engine: Word<EngineKind>,
    version: String,
    path: String,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let cluster = client.cluster(&args.name).await?;
    let wanted = args.engine.map(EngineKind::from);
    let asked = wanted.filter(|engine| args.replace || cluster.engine != *engine);
    let Some(engine) = asked else {
        return tell(args.output.output, &standing(cluster));
    };
    let asked = EngineRequest {
        engine,
        version: args.version,
        bundle: args.bundle,
        within: u32::try_from(args.within.as_secs()).unwrap_or(u32::MAX),
        // Without it, the hub says what it takes.
        replace: args.replace,
        path: args.path,
    };
    let set = client.set_engine(&args.name, &asked).await?;
    let what = format!("{} {} ({})", set.engine, set.version, set.bundle);
    progress_line(&format!(
        "cluster {} is to run {what}, which follows {}",
        args.name, set.path
    ));
    follow(&client, &args.name, set.change, args.wait).await?;
    let told = Told {
        cluster: args.name,
        engine: set.engine.into(),
        version: set.version,
        path: set.path,
        wished: None,
        change: Some(set.change),
        done: args.wait.is_some(),
    };
    match args.output.output {
        Format::Table | Format::Wide => Ok(()),
        format => tell(format, &told),
    }
}

/// The engine in force, as far as it is known: after a hand-over that was taken back the hub's word is another one.
fn standing(cluster: ToldCluster) -> Told {
    let in_force = super::in_force(&cluster).filter(|engine| cluster.engine != *engine);
    let changing =
        |c: &ToldCondition| c.kind == ConditionType::EngineCurrent && c.status == Status::False;
    let done = in_force.is_none() && !cluster.conditions.iter().any(changing);
    let wished = Wished {
        engine: cluster.engine,
        version: cluster.engine_version,
        path: cluster.catalog_path,
    };
    match in_force {
        None => Told {
            cluster: cluster.name,
            engine: wished.engine,
            version: wished.version,
            path: wished.path,
            wished: None,
            change: None,
            done,
        },
        Some(engine) => Told {
            cluster: cluster.name,
            engine: engine.into(),
            version: String::new(),
            path: String::new(),
            wished: Some(wished),
            change: None,
            done,
        },
    }
}

fn tell(format: Format, told: &Told) -> Result<()> {
    emit(&shown(format, told)?)
}

fn shown(format: Format, told: &Told) -> Result<String> {
    Ok(match format {
        Format::Table | Format::Wide => {
            let engine = format!("{} {}", told.engine, told.version);
            let last = match &told.wished {
                None => ("catalog path", told.path.clone()),
                Some(Wished {
                    engine,
                    version,
                    path,
                }) => ("wished", format!("{engine} {version}, to follow {path}")),
            };
            let rows = [
                ("name", told.cluster.to_string()),
                ("engine", engine.trim_end().to_owned()),
                last,
            ];
            rows_text(None, rows.map(|(key, value)| vec![key.to_owned(), value]))
        }
        Format::Name => format!("{}\n", told.cluster),
        Format::Json | Format::Yaml => document(format, told)?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::cluster::wait::tests::cluster;
    use crate::wire::report::{ENGINE_IN_FORCE, Phase};

    #[test]
    fn people_and_programs_are_shown_the_engine_as_they_are_shown_a_cluster() {
        let told = standing(cluster(Phase::Healthy, &[], vec![]));
        assert_eq!(
            shown(Format::Table, &told).unwrap(),
            "name          eu1\n\
             engine        flux 2.9.4\n\
             catalog path  clusters/eu1\n"
        );
        assert_eq!(shown(Format::Name, &told).unwrap(), "eu1\n");
        assert_eq!(
            serde_json::to_value(&told).unwrap(),
            json!({
                "cluster": "eu1", "engine": "flux", "version": "2.9.4", "path": "clusters/eu1", "done": true,
            })
        );
    }

    /// The one that could not take its place was shown as the one that the cluster has.
    #[test]
    fn the_engine_that_came_back_is_shown_beside_the_one_that_is_wished() {
        let returned = ToldCondition {
            kind: ConditionType::EngineCurrent.into(),
            status: Status::False.into(),
            reason: "Returned".to_owned(),
            message: "change 3: argocd 3.4.5 did not work within 600 s".to_owned(),
            since: "2026-01-01T00:00:00Z".to_owned(),
        };
        let mut view = cluster(Phase::Degraded, &[], vec![returned]);
        assert!(!standing(view.clone()).done);
        view.facts = [(ENGINE_IN_FORCE.to_owned(), "flux".to_owned())].into();
        let alike = standing(view.clone());
        assert_eq!((alike.wished, alike.done), (None, false));
        view.engine = EngineKind::Argocd.into();
        view.engine_version = "3.4.5".to_owned();
        view.catalog_path = "clusters/eu1.argocd".to_owned();
        let told = standing(view);
        assert_eq!(
            shown(Format::Table, &told).unwrap(),
            "name    eu1\n\
             engine  flux\n\
             wished  argocd 3.4.5, to follow clusters/eu1.argocd\n"
        );
        assert_eq!(
            serde_json::to_value(&told).unwrap(),
            json!({
                "cluster": "eu1", "engine": "flux", "version": "", "path": "",
                "wished": {"engine": "argocd", "version": "3.4.5", "path": "clusters/eu1.argocd"}, "done": false,
            })
        );
    }
}
