//! `linesman doctor`: looks at both ends and says what is wrong, why, and how to mend it.

mod cluster;
mod local;

use std::collections::BTreeSet;

use anyhow::Result;
use serde::Serialize;

use super::connect::Connect;
use super::exit::{Code, Failure};
use super::output::{Format, Output, counted, document, emit, rows_text};
use crate::client::Client;
use crate::wire::api::{Check, Component, Verdict};
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
Examples:
  linesman doctor
  linesman doctor --cluster eu1       # its line, its conditions, and each component: exists, works, fresh

The cluster's agent is asked to look now (by an operator); without its line what the hub knew last is shown,
and marked. Of each component three things are asked: whether it EXISTS, WORKS, and was seen at work lately
(FRESH): a controller by its Lease, or else by what it answered; Argo CD's Redis by what controllers count of
its answers. '-' = nothing tells of that, as of Argo CD's server: that it is available is all that is known.
Lines with 'fix' say what to do. Ends with 1 where a check fails.";

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
                fix: if ok { String::new() } else { component.fix },
            },
        }
    }
}

pub(super) async fn run(args: Args) -> Result<()> {
    let access = args.connect.found()?;
    let mut report = Report::new(args.output.output);
    let mut client = access.client()?;
    let told = |check| report.add("local", vec![check]);
    if local::network(&access.hub, &client, told).await? {
        // Only now, so that a hub that cannot be reached is told as such.
        let access = match access.clone().renewed().await {
            Ok(renewed) => {
                client = renewed.client()?;
                renewed
            }
            Err(_) => access,
        };
        let me = local::login(&access, &client).await;
        let known = me.ok;
        report.add("local", vec![me])?;
        report.add("local", local::kubectl().await)?;
        if known {
            report.add("hub", hub(&client).await)?;
        }
        if let Some(name) = args.cluster.as_ref().filter(|_| known) {
            let (checks, components) = cluster::look(&client, name).await;
            report.add("cluster", checks)?;
            report.components(components)?;
        }
    } else {
        report.add("local", local::kubectl().await)?;
    }
    report.end()
}

/// Widths of the columns END and CHECK: rows are printed when they are known, before the longest is.
const WIDTHS: [usize; 2] = [7, 19];

/// What was found so far. People see each check when it is known, programs get all of them at the end.
struct Report {
    format: Format,
    results: Vec<Finding>,
    /// What to do is said once.
    fixes: BTreeSet<String>,
}

impl Report {
    fn new(format: Format) -> Self {
        Self {
            format,
            results: Vec::new(),
            fixes: BTreeSet::new(),
        }
    }

    fn add(&mut self, end: &'static str, checks: Vec<Check>) -> Result<()> {
        let findings = checks.into_iter().map(|mut check| {
            if check.ok {
                check.fix.clear();
            }
            Finding {
                end,
                check,
                parts: None,
            }
        });
        self.tell(findings.collect(), Self::rows)
    }

    fn components(&mut self, components: Vec<Component>) -> Result<()> {
        let findings = components.into_iter().map(Finding::from).collect();
        self.tell(findings, Self::component_rows)
    }

    fn tell(
        &mut self,
        findings: Vec<Finding>,
        rows: fn(&mut Self, &[Finding]) -> String,
    ) -> Result<()> {
        if matches!(self.format, Format::Table | Format::Wide) && !findings.is_empty() {
            emit(&rows(self, &findings))?;
        }
        self.results.extend(findings);
        Ok(())
    }

    /// The next action of a check that failed, where it was not said before.
    fn fix(&mut self, check: &Check) -> Option<String> {
        let fix = &check.fix;
        (!check.ok && !fix.is_empty() && self.fixes.insert(fix.clone())).then(|| fix.clone())
    }

    fn rows(&mut self, findings: &[Finding]) -> String {
        let wide = |text: &str, column: usize| format!("{text:<0$}", WIDTHS[column]);
        let header = ["END", "CHECK", "STATE ", "FOUND"];
        let mut rows = Vec::new();
        if self.results.is_empty() {
            rows.push(vec![
                wide(header[0], 0),
                wide(header[1], 1),
                header[2].to_owned(),
                header[3].to_owned(),
            ]);
        }
        for Finding { end, check, .. } in findings {
            let state = if check.ok { "ok    " } else { "failed" };
            rows.push(vec![
                wide(end, 0),
                wide(&check.name, 1),
                state.to_owned(),
                check.found.clone(),
            ]);
            if let Some(fix) = self.fix(check) {
                rows.push(vec![wide("", 0), wide("", 1), "fix   ".to_owned(), fix]);
            }
        }
        rows_text(None, rows)
    }

    fn component_rows(&mut self, findings: &[Finding]) -> String {
        let mut rows = Vec::new();
        for Finding { check, parts, .. } in findings {
            let said = parts.map_or(["-"; 3], |parts| {
                [parts.exists, parts.works, parts.fresh].map(Verdict::as_str)
            });
            let [exists, works, fresh] = said;
            let row = [&check.name, exists, works, fresh, &check.found];
            rows.push(row.map(str::to_owned).to_vec());
            let fix = self.fix(check);
            rows.extend(fix.map(|fix| [" ", " ", " ", "fix", &fix].map(str::to_owned).to_vec()));
        }
        let header = ["COMPONENT", "EXISTS", "WORKS", "FRESH", "FOUND"];
        format!(
            "\n{}",
            rows_text(Some(header.map(str::to_owned).to_vec()), rows)
        )
    }

    fn end(self) -> Result<()> {
        match self.format {
            Format::Json | Format::Yaml => emit(&document(self.format, &self.results)?)?,
            Format::Name => {
                let failed = self.results.iter().filter(|r| !r.check.ok);
                emit(
                    &failed
                        .map(|r| r.check.name.clone() + "\n")
                        .collect::<String>(),
                )?;
            }
            Format::Table | Format::Wide => {}
        }
        let failed = self.results.iter().filter(|r| !r.check.ok).count();
        if failed == 0 {
            return Ok(());
        }
        let all = counted(self.results.len(), "check");
        let text = format!("{failed} of {all} failed");
        Err(Failure::new(Code::Failed, text, "see the lines with 'fix'").into())
    }
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
            fix: e.mend(),
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
        let mut report = Report::new(Format::Json);
        report.add("cluster", vec![line]).unwrap();
        let two = [Verdict::Yes, Verdict::No];
        let named = ["CRDs", "guard policy"].into_iter().zip(two);
        let components = named.map(|(name, works)| component(name, works));
        report.components(components.collect()).unwrap();
        let mut told = Report::new(Format::Table);
        let results = &report.results;
        let text = told.rows(&results[..1]) + &told.component_rows(&results[1..]);
        assert_eq!(
            text,
            "END      CHECK                STATE   FOUND\n\
             cluster  line                 ok      up\n\
             \n\
             COMPONENT     EXISTS  WORKS  FRESH  FOUND\n\
             CRDs          yes     yes    -      as it is\n\
             guard policy  yes     no     -      as it is\n\
             \x20                            fix    mend it\n"
        );
        // Nothing is to be done about what is well; programs are told so, too.
        let fixes: Vec<&str> = results.iter().map(|r| r.check.fix.as_str()).collect();
        assert_eq!(fixes, ["", "", "mend it"]);
        assert!(results[1].check.ok && !results[2].check.ok);
        let json = serde_json::to_value(&results[2]).unwrap();
        assert_eq!(json["works"], "no");
        assert_eq!(json["end"], "component");
    }

    #[test]
    fn one_next_action_is_said_once() {
        let failed = |name: &str| Check {
            name: name.to_owned(),
            ok: false,
            found: "down".to_owned(),
            fix: "look there".to_owned(),
        };
        let mut report = Report::new(Format::Table);
        let findings = ["line", "diagnosis"].map(|name| Finding {
            end: "cluster",
            check: failed(name),
            parts: None,
        });
        assert_eq!(
            report.rows(&findings),
            "END      CHECK                STATE   FOUND\n\
             cluster  line                 failed  down\n\
             \x20                             fix     look there\n\
             cluster  diagnosis            failed  down\n"
        );
    }
}
