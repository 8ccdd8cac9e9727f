use bytes::Bytes;
use tokio::io::duplex;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::Steady;
use crate::tunnel::driver::{Identity, Socket};
use crate::tunnel::session::{Config, Role};

const PATIENCE: Duration = Duration::from_secs(10);

fn eu1() -> ClusterName {
    "eu1".parse().unwrap()
}

/// The hub's end of a line of this process of an agent.
fn line(tasks: &mut JoinSet<()>, epoch: u64, instance: &str) -> Line {
    let (hub, agent) = duplex(64 << 10);
    let mut end = |io, role| {
        let identity = Identity {
            epoch,
            session: String::new(),
            remote: String::new(),
            instance: instance.to_owned(),
            since: OffsetDateTime::UNIX_EPOCH,
            hub_clock: Steady::new(0, std::time::Instant::now()),
            cap: None,
        };
        let socket = Socket::new(io, role, Bytes::new());
        let (streams, stop) = (mpsc::channel(1).0, CancellationToken::new());
        let (line, run) = driver::line(socket, Config::new(role), identity, streams, stop);
        tasks.spawn(async move { drop(run.await) });
        line
    };
    end(agent, Role::Agent);
    end(hub, Role::Hub)
}

/// L25: two handshakes of a cluster may be done in another order than they were given their epochs.
#[tokio::test]
async fn of_handshakes_that_overlap_the_higher_epoch_stays() {
    for (instances, what) in [
        (["one", "one"], "the same process"),
        (["one", "other"], "two processes"),
    ] {
        for epochs in [[5, 6], [6, 5]] {
            let (tunnels, mut tasks) = (Tunnels::default(), JoinSet::new());
            let mut added = Vec::new();
            for epoch in epochs {
                let instance = instances[usize::from(epoch == 6)];
                let line = line(&mut tasks, epoch, instance);
                tunnels.add(&eu1(), "id-eu1", line.clone(), None);
                added.push((epoch, line));
            }
            added.sort_by_key(|(epoch, _)| *epoch);
            let [(_, old), (_, new)] = &added[..] else {
                unreachable!()
            };
            let ended = timeout(PATIENCE, old.closed()).await.expect("it gives way");
            assert_eq!(ended.code, Code::Superseded, "{what} {epochs:?}");
            assert!(new.takes_streams(), "{what} {epochs:?}");
            let found = tunnels.get(&eu1()).map(|line| line.facts().epoch);
            assert_eq!(found, Some(6), "{what} {epochs:?}");
        }
    }
}
