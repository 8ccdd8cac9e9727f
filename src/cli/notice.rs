//! `linesman notice`: what the hub tells people elsewhere of.

use anyhow::Result;

use super::connect::Connect;
use super::exit::{Code, Failure};
use super::output::{Column, Output, list};
use crate::wire::api::Check;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Send a test to each receiver of the hub's notices, and show what it answered
    Test(TestArgs),
}

const TEST: &str = "\
Receivers are what --notify-url and --notify-slack-url-file of the hub name. The notice has the class Test and
says that nothing is wrong; each is tried once, by the replica that answers. Ends with 1 where one did not
take it. It needs the role admin, and is on record. 'linesman doctor' says how the last try of each ended.

Examples:
  linesman notice test";

#[derive(Debug, clap::Args)]
#[command(after_help = TEST)]
pub(super) struct TestArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const COLUMNS: [Column<Check>; 3] = [
    Column::new("RECEIVER", |c, _| c.name.clone()),
    Column::new("STATE", |c, _| {
        let state = if c.ok { "ok" } else { "failed" };
        state.to_owned()
    }),
    Column::new("FOUND", |c, _| c.found.clone()),
];

pub(super) async fn run(verb: Verb) -> Result<()> {
    let Verb::Test(args) = verb;
    let tried = args.connect.client().await?.test_notices().await?;
    let none = "the hub has no receiver of notices";
    list(
        args.output.output,
        &tried,
        &COLUMNS,
        |c| c.name.clone(),
        none,
    )?;
    match failure(&tried) {
        None => Ok(()),
        Some(failure) => Err(failure.into()),
    }
}

/// Why notices do not arrive.
fn failure(tried: &[Check]) -> Option<Failure> {
    if tried.is_empty() {
        let next = "start the hub with --notify-url or --notify-slack-url-file";
        return Some(Failure::new(Code::Failed, "nobody would be told", next));
    }
    let failed = tried.iter().filter(|check| !check.ok);
    let names: Vec<&str> = failed.clone().map(|check| check.name.as_str()).collect();
    let next = failed.map(|check| check.fix.as_str()).next()?;
    let text = format!("no test arrived at {}", names.join(", "));
    Some(Failure::new(Code::Failed, text, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_well_where_each_receiver_took_the_test() {
        let check = |name: &str, ok: bool| Check {
            name: name.to_owned(),
            ok,
            found: String::new(),
            fix: if ok { "" } else { "look there" }.to_owned(),
        };
        let good = check("webhook", true);
        assert_eq!(failure(std::slice::from_ref(&good)), None);
        assert!(failure(&[]).is_some());
        assert_eq!(
            failure(&[good, check("slack", false)]),
            Some(Failure::new(
                Code::Failed,
                "no test arrived at slack",
                "look there"
            ))
        );
    }
}
