//! A user who is slower than the command whose output he reads.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::{NAMESPACE, POD, Protocol, ready};
use crate::support::figure;
use crate::support::world;

/// How long the user takes nothing. Twice the API server pings the kubelet in that time, which has closed by then.
const STALL: Duration = Duration::from_secs(12);
/// What each command says, in MiB. Two of them are what the agent reads ahead of all users.
const SIZE: usize = 8;

/// L3: a command that ended long before its user reads costs him nothing of what it said, up to the 8 MiB that the agent reads ahead
/// and what is on the way. Asked directly, the API server gives him the beginning, and says that all went well
/// (kubernetes/kubernetes#60140).
#[test]
#[ignore = "needs a real cluster: make test"]
fn what_a_command_said_arrives_whole_at_a_user_who_is_slow() {
    let world = world::adopted();
    ready(&world);
    let read: Vec<_> = thread::scope(|scope| {
        let readers = Protocol::ALL.map(|protocol| {
            let mut direct = world.place.kubectl();
            protocol.choose(direct.args(["-n", NAMESPACE]));
            let direct = scope.spawn(move || slowly_read(&mut direct));
            let mut by_hub = protocol.kubectl(&world, &[]);
            (direct, scope.spawn(move || slowly_read(&mut by_hub)))
        });
        let both = readers.into_iter().map(|(direct, by_hub)| {
            let done = (direct.join(), by_hub.join());
            (done.0.unwrap(), done.1.unwrap())
        });
        both.collect()
    });
    for (protocol, ((direct, code), (by_hub, _))) in Protocol::ALL.iter().zip(&read) {
        figure(
            "L3",
            &format!("exec of {SIZE} MiB whose user reads after 12 s, by {protocol:?}"),
            &format!("{} bytes", SIZE << 20),
            format!("{by_hub} bytes (directly {direct}, {code})"),
        );
    }
    for (protocol, (_, by_hub)) in Protocol::ALL.iter().zip(read) {
        let whole = (SIZE << 20, "exit status: 0".to_owned());
        assert_eq!(by_hub, whole, "{protocol:?}");
    }
}

/// How many bytes arrive of those that a command says, at a user who takes none of them for so long, and how kubectl ends.
fn slowly_read(kubectl: &mut Command) -> (usize, String) {
    let size = (SIZE << 20).to_string();
    let mut running = kubectl
        .args(["exec", POD, "--", "head", "-c", &size, "/dev/zero"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = running.stdout.take().unwrap();
    // What is tested: nobody reads for so long.
    thread::sleep(STALL);
    let got = out.read_to_end(&mut Vec::new()).unwrap();
    (got, running.wait().unwrap().to_string())
}
