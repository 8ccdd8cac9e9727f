//! What the hub is told by `--set`: its own variables, read as the hub reads them, so that a mistake is told before there is a Pod.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Result;
use clap::{CommandFactory as _, FromArgMatches as _};

use crate::cli::exit::{Code, Failure};
use crate::cli::hub::Args;
use crate::cli::hub::config::config;
use crate::cli::{Cli, no_filter, without};
use crate::manifests::hub::{GIT_PORT, HEALTH_PORT, HTTPS_PORT};
use crate::telemetry::filter_of;

/// Variables that the manifests say themselves, and what has a say in them.
const SAID: [(&str, &str); 11] = [
    ("LINESMAN_DATA", "--storage and --storage-class"),
    ("LINESMAN_URL", "--url"),
    ("LINESMAN_GIT_URL", "--git-url"),
    ("LINESMAN_AGENT_IMAGE", "--agent-image"),
    ("LINESMAN_TLS_CERT", "--tls-secret"),
    ("LINESMAN_TLS_KEY", "--tls-secret"),
    ("LINESMAN_TLS_CA", "--tls-ca"),
    ("LINESMAN_DATABASE_URL_FILE", "--database-secret"),
    ("LINESMAN_PEER_LISTEN", "--replicas"),
    ("LINESMAN_PEER_URL", "--replicas"),
    ("LINESMAN_DRAIN", "--drain"),
];

/// Variables with a port of the Pod: where a cluster has no IPv4, the address is another.
const LISTENS: [(&str, u16); 3] = [
    ("LINESMAN_LISTEN", HTTPS_PORT),
    ("LINESMAN_GIT_LISTEN", GIT_PORT),
    ("LINESMAN_HEALTH_LISTEN", HEALTH_PORT),
];

/// Variables of the hub's that no flag is for.
const OTHERS: [&str; 5] = [
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

pub(super) fn settings(given: &[(String, String)]) -> Result<BTreeMap<String, String>> {
    let grammar = Cli::command();
    // The hub's address is another flag's, and no mistake of these.
    let mut line = ["linesman", "hub", "--url=https://hub.invalid"]
        .map(str::to_owned)
        .to_vec();
    let mut without_files = line.clone();
    for (name, value) in given {
        is_free(name, value)?;
        match flag(&grammar, name) {
            Some(flag) => {
                let word = format!("--{flag}={value}");
                // Those that are in the Pod cannot be read here.
                if !name.ends_with("_FILE") && !name.ends_with("_CA") {
                    without_files.push(word.clone());
                }
                line.push(word);
            }
            None if OTHERS.contains(&name.as_str()) => {}
            None => {
                let text = format!("--set {name}: the hub has no such variable");
                return Err(usage(text, "see those that it has: linesman hub --help").into());
            }
        }
        if name == "LINESMAN_LOG" {
            filter_of(value).map_err(|error| no_filter(&error))?;
        }
    }
    // Of the environment here nothing gets into the Pod.
    let grammar = without(grammar, &|_| true);
    let wrong = |error: clap::Error| usage(format!("--set: {}", said(&error)), "correct the value");
    let read = grammar.clone().try_get_matches_from(line);
    read.map_err(wrong)?;
    let read = grammar.try_get_matches_from(without_files);
    if let Some(hub) = read.map_err(wrong)?.subcommand_matches("hub") {
        config(Args::from_arg_matches(hub).map_err(wrong)?)?;
    }
    Ok(given.iter().cloned().collect())
}

/// Whether it may be said at all.
fn is_free(name: &str, value: &str) -> Result<(), Failure> {
    if let Some((_, flags)) = SAID.iter().find(|(said, _)| *said == name) {
        let text = format!("--set {name}: another flag says that");
        return Err(usage(text, &format!("give {flags}")));
    }
    let Some((_, port)) = LISTENS.iter().find(|(listen, _)| *listen == name) else {
        return Ok(());
    };
    let address: Option<SocketAddr> = value.parse().ok();
    if address.is_some_and(|address| address.ip().is_unspecified() && address.port() == *port) {
        return Ok(());
    }
    let text = format!("--set {name}={value}: Service and probes come to port {port} of the Pod");
    let next = format!("leave it out, or give [::]:{port} where the cluster has IPv6 alone");
    Err(usage(text, &next))
}

/// The flag of the hub's whose variable it is.
pub(super) fn flag(grammar: &clap::Command, name: &str) -> Option<String> {
    let hub = grammar.find_subcommand("hub")?;
    let mut all = hub.get_arguments().chain(grammar.get_arguments());
    let found = all.find(|arg| arg.get_env().is_some_and(|env| env == name))?;
    found.get_long().map(str::to_owned)
}

/// What the grammar says is wrong, without its usage.
fn said(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    first.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn usage(text: String, next: &str) -> Failure {
    Failure::new(Code::Usage, text, next)
}
