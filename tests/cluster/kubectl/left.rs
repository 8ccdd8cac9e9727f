//! L8: sessions that their user leaves, beside the same ones without the hub. A command that reads nothing lasts as long as it does,
//! whoever left it: those here end with their input.

use std::net::TcpStream;
use std::process::Command;

use linesman::clock;
use time::OffsetDateTime;

use super::{NAMESPACE, POD, Protocol, Running, ask, body, line, ready};
use crate::support::audit::Mark;
use crate::support::place::run;
use crate::support::world::{self, World};
use crate::support::{eventually, figure, seconds};

/// What is left, by the API server's name for it, and how it is begun.
const SESSIONS: [(&str, &[&str]); 2] = [
    (
        "exec",
        &["exec", "-i", POD, "--", "sh", "-c", "echo begun; cat"],
    ),
    ("portforward", &["port-forward", POD, ":8080"]),
];

/// L8
#[test]
#[ignore = "needs a real cluster: make test"]
fn leaving_a_session_ends_its_request_at_the_api_server() {
    let world = world::adopted();
    ready(&world);
    for (what, args) in SESSIONS {
        for protocol in Protocol::ALL {
            let mut directly = world.place.kubectl();
            directly.args(["-n", NAMESPACE]).args(args);
            protocol.choose(&mut directly);
            let directly = left(&world, &directly, (what, false));
            let by_line = left(&world, &protocol.kubectl(&world, args), (what, true));
            for (way, bar, took) in [
                (", without the hub", "", directly),
                ("", "< 0.1 s", by_line),
            ] {
                figure(
                    "L8",
                    &format!(
                        "Ctrl-C of kubectl {} by {protocol:?}{way} → request ended at the API server",
                        args[0]
                    ),
                    bar,
                    format!("{:.3} s", took.as_seconds_f64()),
                );
            }
            let late = by_line - directly;
            assert!(
                late < time::Duration::seconds(5),
                "{what} {protocol:?}: {late}"
            );
        }
    }
}

/// How long after Ctrl-C the request of that kind had ended, be it one of the line's.
fn left(world: &World, kubectl: &Command, (what, by_line): (&str, bool)) -> time::Duration {
    let mark = Mark::now(&world.audit);
    let (running, lines) = Running::start(&mut interruptible(kubectl));
    let told = line(&lines, "it runs", |_| true);
    // A connection through it that says nothing any more.
    let idle = told.split("127.0.0.1:").nth(1).map(|rest| {
        let port = rest.split(' ').next().unwrap().parse().unwrap();
        body(ask(port, "/page"));
        TcpStream::connect(("127.0.0.1", port)).unwrap()
    });
    assert_eq!(idle.is_some(), what == "portforward", "{told}");
    let at = clock::now();
    run(Command::new("kill").args(["-INT", &running.0.id().to_string()]));
    let (ended, _) = eventually("the API server has ended it", seconds(30), || {
        ended(&mark, what, by_line).ok_or("it goes on")
    });
    ended - at
}

/// The same with Ctrl-C as people have it: a test run in the background ignores it, and so does a program that it starts.
pub(super) fn interruptible(kubectl: &Command) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=INT");
    command.arg(kubectl.get_program()).args(kubectl.get_args());
    for (name, value) in kubectl.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(at) = kubectl.get_current_dir() {
        command.current_dir(at);
    }
    command
}

/// When the API server was done with it.
fn ended(mark: &Mark, what: &str, by_line: bool) -> Option<OffsetDateTime> {
    let events = mark.events();
    let of_it = |event: &&serde_json::Value| {
        event["stage"] == "ResponseComplete"
            && event["objectRef"]["namespace"] == NAMESPACE
            && event["objectRef"]["subresource"] == what
            && event["impersonatedUser"].is_null() != by_line
    };
    let event = events.iter().find(of_it)?;
    clock::parse_rfc3339(event["stageTimestamp"].as_str()?)
}
