//! Flags and environment become validated configuration; each verb has its file.
//!
//! Data goes to stdout, progress and errors to stderr. Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 login
//! needed or denied, 5 conflict, 6 wait timed out, 7 hub (or what `engine import` fetches from) unreachable, 130 interrupted.

pub mod agent;
mod audit;
mod catalog;
mod cluster;
mod completion;
mod confirm;
mod connect;
mod credential;
mod doctor;
mod duration;
mod engine;
mod exit;
mod follow;
mod githost;
mod grant;
mod heal;
pub mod hub;
mod interrupt;
mod kubeconfig;
mod line;
mod login;
mod logout;
mod manifests;
mod moment;
mod notice;
mod once;
mod output;
mod progress;
mod session;
mod size;
mod token;
mod user;
mod version;
mod wait;
mod whoami;

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::error::ContextKind;
use clap::{Parser, Subcommand, ValueEnum};
use tokio::runtime::{Builder, Runtime};

/// What still runs in a thread of its own at the end has so long: a file whose mount does not answer keeps no process.
const LEFT: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Adopt a cluster:
  linesman login https://hub.example.org:8443 --token-file admin.token --ca ca.crt
  linesman cluster add eu1 --file adopt.yaml
  kubectl apply -f adopt.yaml
  linesman cluster wait eu1

Reach it:
  linesman kubeconfig eu1 > eu1.kubeconfig
  kubectl --kubeconfig eu1.kubeconfig get nodes

Something is wrong:
  linesman cluster list                          # the worst first
  linesman doctor --cluster eu1                  # what is wrong, why, and how to mend it
  linesman heal list eu1                         # what broke, and what was done about it

TIME is a length such as 90s, 5m, 24h or 7d. What programs read (-o) is on stdout, all else on stderr.

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 login needed or denied, 5 conflict,
6 wait timed out, 7 hub (or what 'engine import' fetches from) unreachable, 130 interrupted.";

/// Adopts Kubernetes clusters into a GitOps catalog and keeps them there.
#[derive(Debug, Parser)]
#[command(name = "linesman", version = version::own(), after_help = EXAMPLES, propagate_version = false)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 110
)]
struct Cli {
    #[command(flatten)]
    logging: Logging,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Args)]
struct Logging {
    /// What to log to stderr: off, error, warn, info, debug, or `linesman::agent=debug` [default: info of hub and agent, else warn]
    #[arg(long, global = true, env = "LINESMAN_LOG", value_name = "FILTER")]
    #[arg(hide_env_values = true, help_heading = "Logging")]
    log: Option<String>,
    /// How to log
    #[arg(
        long,
        global = true,
        env = "LINESMAN_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text"
    )]
    #[arg(hide_env_values = true, help_heading = "Logging")]
    log_format: LogFormat,
}

/// The command line with the one verb that runs in every cluster. What the others need to be parsed, their help above all, would
/// stay in the agent's memory for good.
#[derive(Debug, Parser)]
#[command(name = "linesman")]
struct OfAgent {
    #[command(flatten)]
    logging: Logging,
    #[command(subcommand)]
    verb: AgentVerb,
}

#[derive(Debug, Subcommand)]
enum AgentVerb {
    Agent(Box<agent::Args>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the hub: API, built-in Git, line endpoint, Kubernetes proxy
    Hub(Box<hub::Args>),
    /// Run the agent in a cluster (the adoption YAML does this)
    Agent(Box<agent::Args>),
    /// Log in to a hub and keep the session
    Login(login::Args),
    /// End the session of a hub, and forget it
    Logout(logout::Args),
    /// Show who you are to the hub
    Whoami(whoami::Args),
    /// Add clusters, look at them, let them go
    #[command(subcommand)]
    Cluster(cluster::Verb),
    /// Make a kubeconfig that reaches clusters through the hub
    Kubeconfig(kubeconfig::Args),
    /// Print the hub's token for kubectl (an exec credential plugin)
    Credential(credential::Args),
    /// Give people access to clusters, take it back, see why someone gets through
    #[command(subcommand)]
    Grant(grant::Verb),
    /// Add, list and remove the hub's users
    #[command(subcommand)]
    User(user::Verb),
    /// Make, list and revoke tokens of people and programs
    #[command(subcommand)]
    Token(token::Verb),
    /// See and accept the keys that clusters know their Git host by
    #[command(subcommand)]
    Githost(githost::Verb),
    /// Start, clone or check a catalog; say who signs it
    #[command(subcommand)]
    Catalog(catalog::Verb),
    /// Import engine versions into the hub, list and remove them, give clusters another one
    #[command(subcommand)]
    Engine(engine::Verb),
    /// Show a cluster's line: round trip, streams, bytes, why the last one ended
    Line(line::Args),
    /// See what was broken and how it was mended
    #[command(subcommand)]
    Heal(heal::Verb),
    /// See whether the hub's notices arrive
    #[command(subcommand)]
    Notice(notice::Verb),
    /// See who did what
    #[command(subcommand)]
    Audit(audit::Verb),
    /// Print the agent's manifests as a cluster owner would apply them
    Manifests(manifests::Args),
    /// Check both ends: this machine, the hub, a cluster
    Doctor(doctor::Args),
    /// Print a shell's completion script
    Completion(completion::Args),
    /// Print the version of this program, and of the hub
    Version(version::Args),
}

/// Runs the command line; every error is printed once, here.
pub fn main() -> ExitCode {
    // An error means that one is installed already, which is as good.
    let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    run(std::env::args_os())
}

fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match parse(&args) {
        Ok(cli) => cli,
        Err(e) => {
            // Nothing is left to tell when the terminal is gone.
            let _printed = e.print();
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2));
        }
    };
    let serves = match &cli.verb {
        Verb::Hub(args) => args.serves(),
        verb => matches!(verb, Verb::Agent(_)),
    };
    let filter = cli
        .logging
        .log
        .unwrap_or_else(|| if serves { "info" } else { "warn" }.to_owned());
    let colour = output::paints(std::io::stderr().is_terminal());
    let json = cli.logging.log_format == LogFormat::Json;
    exit::report(match crate::telemetry::init(&filter, json, colour) {
        Ok(()) => dispatch(cli.verb),
        Err(e) => Err(no_filter(&e).into()),
    })
}

/// What cannot be read the full parser says in its words.
fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    if args.get(1).is_some_and(|verb| verb == "agent")
        && let Ok(OfAgent { logging, verb }) = read::<OfAgent>(args)
    {
        let AgentVerb::Agent(args) = verb;
        let verb = Verb::Agent(args);
        return Ok(Cli { logging, verb });
    }
    read(args)
}

/// The command line and, for what it leaves out, the environment.
fn read<P: Parser>(args: &[OsString]) -> Result<P, clap::Error> {
    let empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let matches = without(P::command(), &empty).try_get_matches_from(args);
    let mut matches = matches.map_err(|e| as_typed::<P>(e, args))?;
    P::from_arg_matches_mut(&mut matches).map_err(|e| e.format(&mut P::command()))
}

/// The error with the usage of what was typed: clap names what the environment gives beside it, as if it were needed, too.
fn as_typed<P: Parser>(mut error: clap::Error, args: &[OsString]) -> clap::Error {
    let typed = without(P::command(), &|_| true).try_get_matches_from(args);
    if let Err(typed) = typed
        && typed.kind() == error.kind()
        && let Some(usage) = typed.get(ContextKind::Usage)
    {
        error.insert(ContextKind::Usage, usage.clone());
    }
    error
}

/// Without the variables that are empty: such a one counts as one that is not set, as scripts and Compose files leave them.
fn without(command: clap::Command, empty: &dyn Fn(&OsStr) -> bool) -> clap::Command {
    command
        .mut_args(|arg| {
            if arg.get_env().is_some_and(empty) {
                arg.env(None::<&str>)
            } else {
                arg
            }
        })
        .mut_subcommands(|sub| without(sub, empty))
}

fn no_filter(error: &crate::telemetry::NoFilter) -> exit::Failure {
    let next = "give --log (LINESMAN_LOG) off, error, warn, info, debug or trace, or such as linesman::agent=debug";
    exit::Failure::new(exit::Code::Usage, error.to_string(), next)
}

fn dispatch(verb: Verb) -> Result<()> {
    match verb {
        Verb::Hub(args) => to_the_end(on_all_cores()?, hub::run(*args)),
        Verb::Agent(args) => to_the_end(on_all_cores()?, agent::run(*args)),
        Verb::Login(args) => briefly(login::run(args)),
        Verb::Logout(args) => briefly(logout::run(args)),
        Verb::Whoami(args) => briefly(whoami::run(args)),
        Verb::Cluster(verb) => briefly(cluster::run(verb)),
        Verb::Kubeconfig(args) => briefly(kubeconfig::run(args)),
        Verb::Credential(args) => credential::run(&args),
        Verb::Grant(verb) => briefly(grant::run(verb)),
        Verb::User(verb) => briefly(user::run(verb)),
        Verb::Token(verb) => briefly(token::run(verb)),
        Verb::Githost(verb) => briefly(githost::run(verb)),
        Verb::Catalog(verb) => briefly(catalog::run(verb)),
        Verb::Engine(verb) => briefly(engine::run(verb)),
        Verb::Line(args) => briefly(line::run(args)),
        Verb::Heal(verb) => briefly(heal::run(verb)),
        Verb::Notice(verb) => briefly(notice::run(verb)),
        // A long record is read and hashed on all of them.
        Verb::Audit(verb) => until_interrupted(on_all_cores()?, audit::run(verb)),
        Verb::Manifests(args) => manifests::run(&args),
        Verb::Doctor(args) => briefly(doctor::run(args)),
        Verb::Completion(args) => completion::run(&args),
        Verb::Version(args) => briefly(version::run(args)),
    }
}

fn on_all_cores() -> Result<Runtime> {
    Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")
}

/// Runs an operator's verb; Ctrl-C ends it with 130.
fn briefly<T>(verb: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    until_interrupted(runtime, verb)
}

fn until_interrupted<T>(runtime: Runtime, verb: impl Future<Output = Result<T>>) -> Result<T> {
    // First, so that it listens before the verb does anything.
    let interrupt = interrupt::listen()?;
    to_the_end(runtime, interrupt.ends(verb))
}

/// Runs it, and lets go of what hangs behind it: the runtime's own end would wait for that without limit.
fn to_the_end<T>(runtime: Runtime, work: impl Future<Output = Result<T>>) -> Result<T> {
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(LEFT);
    result
}

#[cfg(test)]
mod tests;
