//! L48: what is kept of an attach.

use std::io::Write as _;

use serde_json::Value;

use super::revoked::by;
use super::{POD, Protocol, Running, line, ready, user};
use crate::support::audit::Mark;
use crate::support::place::output;
use crate::support::world::{self, World};
use crate::support::{eventually, seconds, until};

const USER: &str = "attacher";

/// How a session ends.
#[derive(Debug, Clone, Copy)]
enum End {
    /// Its input does, and it says that it ended well.
    Left,
    /// Its user's program is gone in the middle of it.
    Killed,
}

/// The user's attaches of this stage, the oldest first.
fn attaches(world: &World, stage: &str) -> Vec<Value> {
    let list = ["audit", "list", "--user", USER, "--limit", "500"];
    let rows = world.hub.json(&list);
    let rows = rows.as_array().unwrap().iter().rev();
    rows.filter(|row| row["stage"] == stage && row["action"] == "kube.attach")
        .cloned()
        .collect()
}

/// L48: by either protocol an attach is on record with its bytes and its end, under the id that the API server's own audit has.
#[test]
#[ignore = "needs a real cluster: make test"]
fn the_record_of_an_attach_has_its_bytes_and_how_it_ended() {
    let world = world::adopted();
    ready(&world);
    let kubeconfig = user(&world, USER, &["--group", "admin"]);
    let kubectl = |protocol, args: &[&str]| by(&world, &kubeconfig, protocol, args);
    until("the grant is in force", seconds(30), || {
        let get = output(&mut kubectl(Protocol::WebSocket, &["get", "pod", POD]));
        get.status.success()
    });
    let mark = Mark::now(&world.audit);
    for protocol in Protocol::ALL {
        for end in [End::Left, End::Killed] {
            let before = attaches(&world, "close").len();
            let (mut attached, lines) =
                Running::start(&mut kubectl(protocol, &["attach", "-q", "-i", POD]));
            let mut stdin = attached.0.stdin.take().unwrap();
            let said = format!("{end:?} by {protocol:?}");
            writeln!(stdin, "{said}").unwrap();
            let answer = format!("got {said}");
            line(&lines, "the container answers", |line| line == answer);
            if matches!(end, End::Left) {
                drop(stdin);
                until("it ends", seconds(30), || attached.over());
            }
            drop(attached);
            let (row, _) = eventually("it is on record", seconds(30), || {
                let rows = attaches(&world, "close");
                rows.get(before).cloned().ok_or("it is not")
            });
            let exit = match end {
                End::Left => Some(0),
                End::Killed => None,
            };
            assert_eq!(row["exit"].as_i64(), exit, "{said}: {row}");
            is_whole(&world, &mark, &row, said.len() + answer.len());
        }
    }
}

/// Begun and ended on the hub's record, with so many bytes at least, and the same request on the API server's.
fn is_whole(world: &World, mark: &Mark, row: &Value, bytes: usize) {
    assert_eq!(row["actor"], format!("user:{USER}"), "{row}");
    assert_eq!(row["verdict"], "allow", "{row}");
    assert_eq!(row["code"], 101, "{row}");
    assert!(row["millis"].is_u64(), "{row}");
    let passed = row["bytes"].as_u64().unwrap_or_default();
    assert!(passed >= u64::try_from(bytes).unwrap(), "{row}");
    let id = &row["requestId"];
    let opened = attaches(world, "open");
    let opened = opened.iter().filter(|open| open["requestId"] == *id);
    assert_eq!(opened.count(), 1, "{row}");
    until("the API server has it by that id", seconds(30), || {
        mark.events().iter().any(|event| {
            event["auditID"] == *id
                && event["objectRef"]["subresource"] == "attach"
                && event["impersonatedUser"]["username"] == format!("linesman:{USER}")
                && event["stage"] == "ResponseComplete"
        })
    });
}
