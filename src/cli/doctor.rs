//! `linesman doctor`: looks at both ends and says what is wrong, why, and how to mend it.

mod cluster;
mod local;

use anyhow::Result;
use serde::Serialize;

use super::connect::Connect;
use super::exit::{Code, Failure};
use super::output::{Format, Output, document, emit, rows_text};
use crate::client::Client;
use crate::wire::api::{Check, Component, Verdict};
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
Examples:
  linesman doctor
  linesman doctor --cluster eu1       # its line, its conditions, and each component: exists, works, fresh

The cluster's agent is asked to look now (by an operator); without its line what the hub knew last is shown, and marked.
Ends with 1 where a check fails.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Look at this cluster as well
    #[arg(long, value_name = "NAME")]
    cluster: Option<ClusterName>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

/// A check with the end that it was made at.
#[derive(Debug, Serialize)]
struct Finding {
    end: &'static str,
    #[serde(flatten)]
    check: Check,
    /// Of a component of a cluster: the three questions.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    parts: Option<Parts>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Parts {
    exists: Verdict,
    works: Verdict,
    fresh: Verdict,
}

impl From<Component> for Finding {
    fn from(component: Component) -> Self {
        let ok = component.ok();
        Self {
            end: "component",
            parts: Some(Parts {
                exists: component.exists,
                works: component.works,
                fresh: component.fresh,
            }),
            check: Check {
                name: component.name,
                ok,
                found: component.found,
                fix: component.fix,
            },
        }
    }
}

pub(super) async fn run(args: Args) -> Result<()> {
    let access = args.connect.found()?;
    let mut results = Vec::new();
    let mut add = |end, checks: Vec<Check>| {
        let parts = None;
        results.extend(
            checks
                .into_iter()
                .map(|check| Finding { end, check, parts }),
        );
    };
    let mut client = access.client()?;
    add("local", local::network(&access.hub, &client).await);
    // Only now, so that a hub that cannot be reached is told as such.
    let access = match args.connect.access().await {
        Ok(renewed) => {
            client = renewed.client()?;
            renewed
        }
        Err(_) => access,
    };
    let me = local::login(&access, &client).await;
    let known = me.ok;
    add("local", vec![me]);
    add("local", local::kubectl().await);
    if known {
        add("hub", hub(&client).await);
    }
    if let Some(name) = args.cluster.as_ref().filter(|_| known) {
        let (checks, components) = cluster::look(&client, name).await;
        add("cluster", checks);
        results.extend(components.into_iter().map(Finding::from));
    }
    print(args.output.output, &results)?;
    match results.iter().filter(|r| !r.check.ok).count() {
        0 => Ok(()),
        count => Err(Failure::new(
            Code::Failed,
            format!("{count} of {} checks failed", results.len()),
            "see the lines with 'fix'",
        )
        .into()),
    }
}

fn print(format: Format, results: &[Finding]) -> Result<()> {
    match format {
        Format::Json | Format::Yaml => emit(&document(format, &results)?),
        Format::Name => emit(
            &results
                .iter()
                .filter(|r| !r.check.ok)
                .map(|r| r.check.name.clone() + "\n")
                .collect::<String>(),
        ),
        Format::Table | Format::Wide => emit(&tables(results)),
    }
}

fn tables(results: &[Finding]) -> String {
    let (mut rows, mut components) = (Vec::new(), Vec::new());
    for Finding { end, check, parts } in results {
        let fix = Some(check.fix.as_str()).filter(|fix| !check.ok && !fix.is_empty());
        if let Some(parts) = parts {
            let said = [parts.exists, parts.works, parts.fresh].map(Verdict::as_str);
            let [exists, works, fresh] = said;
            let row = [&check.name, exists, works, fresh, &check.found];
            components.push(row.map(str::to_owned).to_vec());
            let next = fix.map(|fix| [" ", " ", " ", "fix", fix].map(str::to_owned).to_vec());
            components.extend(next);
        } else {
            let state = if check.ok { "ok" } else { "failed" };
            let row = [*end, &check.name, state, &check.found];
            rows.push(row.map(str::to_owned).to_vec());
            let next = fix.map(|fix| [" ", " ", "fix", fix].map(str::to_owned).to_vec());
            rows.extend(next);
        }
    }
    let header = ["END", "CHECK", "STATE", "FOUND"];
    let mut text = rows_text(Some(header.map(str::to_owned).to_vec()), rows);
    if !components.is_empty() {
        let header = ["COMPONENT", "EXISTS", "WORKS", "FRESH", "FOUND"];
        text.push('\n');
        text += &rows_text(Some(header.map(str::to_owned).to_vec()), components);
    }
    text
}

/// A check that is as good as the result of a call.
fn tried<T>(
    name: &str,
    result: Result<T, crate::client::Error>,
    found: impl FnOnce(T) -> String,
) -> Check {
    let name = name.to_owned();
    match result {
        Ok(value) => Check {
            name,
            ok: true,
            found: found(value),
            fix: String::new(),
        },
        Err(e) => Check {
            name,
            ok: false,
            found: e.to_string(),
            fix: e.next(),
        },
    }
}

async fn hub(client: &Client) -> Vec<Check> {
    match client.checks().await {
        Ok(checks) => checks,
        Err(e) => vec![tried("checks", Err::<(), _>(e), |()| String::new())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(name: &str, works: Verdict) -> Component {
        Component {
            name: name.to_owned(),
            exists: Verdict::Yes,
            works,
            fresh: Verdict::None,
            found: "as it is".to_owned(),
            fix: "mend it".to_owned(),
        }
    }

    #[test]
    fn components_have_a_table_of_their_own_with_the_next_action_of_those_that_fail() {
        let line = Check {
            name: "line".to_owned(),
            ok: true,
            found: "up".to_owned(),
            fix: "none".to_owned(),
        };
        let results = [
            Finding {
                end: "cluster",
                check: line,
                parts: None,
            },
            component("CRDs", Verdict::Yes).into(),
            component("guard policy", Verdict::No).into(),
        ];
        assert_eq!(
            tables(&results),
            "END      CHECK  STATE  FOUND\n\
             cluster  line   ok     up\n\
             \n\
             COMPONENT     EXISTS  WORKS  FRESH  FOUND\n\
             CRDs          yes     yes    -      as it is\n\
             guard policy  yes     no     -      as it is\n\
             \x20                            fix    mend it\n"
        );
        assert!(results[1].check.ok && !results[2].check.ok);
        let json = serde_json::to_value(&results[2]).unwrap();
        assert_eq!(json["works"], "no");
        assert_eq!(json["end"], "component");
    }
}
