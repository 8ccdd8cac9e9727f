use bytes::Bytes;
use tokio::io::duplex;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::Steady;
use crate::hub::twin::takeovers::Takeover;
use crate::tunnel::driver::{Identity, Socket};
use crate::tunnel::session::{Config, Role};
use crate::wire::frame::{Class, Kind};

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

/// Each drains for minutes, and has a place meanwhile that another cluster's line may need.
#[tokio::test]
async fn of_more_lines_than_a_cluster_may_have_the_oldest_ends_at_once() {
    let (tunnels, mut tasks) = (Tunnels::default(), JoinSet::new());
    let mut lines = Vec::new();
    for epoch in 1..=u64::try_from(MAX_LINES).unwrap() + 1 {
        let line = line(&mut tasks, epoch, "one");
        tunnels.add(&eu1(), "id-eu1", line.clone(), Some(epoch - 1));
        lines.push(line);
    }
    let mut texts = Vec::new();
    for line in &lines[..2] {
        let ended = timeout(PATIENCE, line.closed()).await.expect("it ends");
        assert_eq!(ended.code, Code::Superseded);
        texts.push(ended.text);
    }
    assert_eq!(texts, [CROWDED, "drained"]);
    assert!(lines.last().unwrap().takes_streams());
}

/// L41
#[tokio::test]
async fn a_line_ends_with_the_key_that_it_was_proven_by() {
    let (tunnels, mut tasks) = (Tunnels::default(), JoinSet::new());
    let line = line(&mut tasks, 7, "one");
    tunnels.add(&eu1(), "its", line.clone(), None);
    // Another cluster that had the name has none here.
    tunnels.proven((&eu1(), "another"), 7, "k0");
    tunnels.proven((&eu1(), "its"), 7, "k1");
    let of = |name: ClusterName| tunnels.keys(Some(&name));
    let told = [tunnels.keys(None), of(eu1()), of("eu2".parse().unwrap())];
    let k1 = || vec!["k1".to_owned()];
    assert_eq!(told, [k1(), k1(), vec![]]);
    let other = [("k0".to_owned(), false)].into();
    assert_eq!(tunnels.proven_by(&other), []);
    tunnels.end_former(&eu1(), &other, None);
    let stream = line.open(Kind::Api, Class::Normal, Bytes::new()).await;
    assert!(stream.is_ok(), "{stream:?}");

    let its = [("k1".to_owned(), false)].into();
    assert_eq!(tunnels.proven_by(&its), [eu1()]);
    tunnels.end_former(&eu1(), &its, None);
    let ended = timeout(PATIENCE, line.closed()).await.expect("it ends");
    let said = (ended.code, ended.text.as_str());
    assert_eq!(said, (Code::Revoked, "the key of this line has ended"));
    tunnels.remove((&eu1(), "its"), &line, &ended);
    assert_eq!(tunnels.keys(None), [] as [&str; 0]);
}

fn gone() -> Ended {
    Ended {
        code: Code::None,
        text: "it went".to_owned(),
        retry_after: None,
        by_peer: true,
        silence: Duration::ZERO,
    }
}

/// L13: of a line that fell silent nothing was heard for 24.5 s when that is known.
#[tokio::test]
async fn a_cluster_whose_line_fell_silent_is_down_since_its_last_byte() {
    const SILENCE: Duration = Duration::from_millis(24_500);
    let (tunnels, mut tasks) = (Tunnels::default(), JoinSet::new());
    let silent = || Ended {
        code: Code::LineLost,
        silence: SILENCE,
        by_peer: false,
        ..gone()
    };
    let old = line(&mut tasks, 1, "one");
    tunnels.add(&eu1(), "its", old.clone(), None);
    let known = tunnels.remove((&eu1(), "its"), &old, &silent());
    let view = tunnels.view_of(&eu1(), "its");
    let (since, noticed) = (view.down_since, view.known_down);
    assert_eq!((since, noticed), (Some(known - SILENCE), Some(known)));
    let standing = view.standing(None, None);
    assert_eq!(standing.outage().0, Some(known - SILENCE));
    // Who asks now waits for the next line as long as ever.
    assert!(tunnels.is_expected(&eu1()));

    // Of two lines the one that said goodbye was heard after the other's last byte.
    let [first, second] = [2, 3].map(|epoch| line(&mut tasks, epoch, "one"));
    tunnels.add(&eu1(), "its", first.clone(), None);
    tunnels.add(&eu1(), "its", second.clone(), Some(2));
    let said = tunnels.remove((&eu1(), "its"), &second, &gone());
    let known = tunnels.remove((&eu1(), "its"), &first, &silent());
    let view = tunnels.view_of(&eu1(), "its");
    let (since, noticed) = (view.down_since, view.known_down);
    assert_eq!((since, noticed), (Some(said), Some(known)));
}

fn takeover() -> Takeover {
    let holder = |instance: &str| Holder {
        instance: instance.to_owned(),
        remote: String::new(),
    };
    Takeover {
        at: OffsetDateTime::UNIX_EPOCH,
        from: holder("one"),
        to: holder("other"),
    }
}

/// H44: a name is free when its cluster was removed, and whoever is called so next has nothing of it.
#[tokio::test]
async fn another_cluster_of_a_name_begins_without_a_past() {
    let (tunnels, mut tasks) = (Tunnels::default(), JoinSet::new());
    let old = line(&mut tasks, 7, "one");
    tunnels.add(&eu1(), "old", old.clone(), None);
    tunnels.denied(&eu1(), "NoGrant");
    tunnels.taken((&eu1(), "old"), takeover());
    tunnels.remove((&eu1(), "old"), &old, &gone());
    assert!(tunnels.view_of(&eu1(), "old").down_since.is_some());
    // Before its own line comes, and behind that.
    assert_eq!(tunnels.view_of(&eu1(), "new"), LineView::default());
    assert_eq!(tunnels.denials(&eu1(), "new"), BTreeMap::new());
    let new = line(&mut tasks, 1, "other");
    tunnels.add(&eu1(), "new", new.clone(), None);
    tunnels.remove((&eu1(), "old"), &old, &gone());
    let view = tunnels.view_of(&eu1(), "new");
    assert_eq!(view.up.map(|facts| facts.epoch), Some(1));
    assert_eq!((view.down_since, view.last_cause), (None, None));
    assert_eq!(tunnels.denials(&eu1(), "new"), BTreeMap::new());
    let mut one = Takeovers::default();
    one.add(takeover());
    assert_eq!(tunnels.taken((&eu1(), "new"), takeover()), one);
}

/// L11: the end of a line here says nothing of one that was at another replica since.
#[tokio::test]
async fn a_line_that_was_at_another_replica_is_known_beside_those_that_ended_here() {
    let (tunnels, mut tasks) = (Tunnels::default(), JoinSet::new());
    let (here, there): (_, ClusterName) = (eu1(), "eu2".parse().unwrap());
    let old = line(&mut tasks, 5, "one");
    tunnels.add(&here, "its", old.clone(), None);
    tunnels.remove((&here, "its"), &old, &gone());
    let view = tunnels.view_of(&here, "its");
    let (at, cause) = (view.down_since.unwrap(), view.last_cause.clone().unwrap());
    assert_eq!(view.standing(None, None), Standing::Ended { at, cause });
    let seen = at + time::Duration::hours(1);
    tunnels.known_elsewhere([(&here, 6), (&there, 6)].into_iter(), seen);
    let standing = tunnels.view_of(&here, "its").standing(None, None);
    let line = Some(seen);
    assert_eq!(standing, Standing::Elsewhere { line, heard: seen });
    assert_eq!(tunnels.known(), [(here, "its".to_owned())]);
}

/// What a replica refuses to a cluster whose line is at another one is told by it.
#[test]
fn refusals_count_where_no_line_was() {
    let tunnels = Tunnels::default();
    tunnels.heard_elsewhere(&eu1(), clock::now());
    tunnels.denied(&eu1(), "NoGrant");
    let once = [("NoGrant".to_owned(), 1)].into();
    assert_eq!(tunnels.denials(&eu1(), "its"), once);
}

/// H44: the removed cluster's line runs on for a second, and may have the epoch of the new one's.
#[tokio::test]
async fn a_removed_clusters_line_ends_and_that_of_the_next_one_stays() {
    let (tunnels, mut tasks) = (Tunnels::default(), JoinSet::new());
    let [old, new] = ["one", "other"].map(|instance| line(&mut tasks, 1, instance));
    tunnels.add(&eu1(), "old", old.clone(), None);
    tunnels.add(&eu1(), "new", new.clone(), None);
    let ended = timeout(PATIENCE, old.closed()).await.expect("it ends");
    assert_eq!(ended.code, Code::Revoked);
    tunnels.remove((&eu1(), "old"), &old, &ended);
    tunnels.end_removed(&eu1(), "old");
    assert!(new.takes_streams());
    assert_eq!(tunnels.known(), [(eu1(), "new".to_owned())]);
    assert!(tunnels.get(&eu1()).is_some());
}

/// H44
#[tokio::test]
async fn of_a_removed_cluster_nothing_stays() {
    let (tunnels, mut tasks) = (Tunnels::default(), JoinSet::new());
    let known = |id: &str| vec![(eu1(), id.to_owned())];
    let old = line(&mut tasks, 1, "one");
    tunnels.add(&eu1(), "old", old.clone(), None);
    tunnels.end_removed(&eu1(), "old");
    let ended = timeout(PATIENCE, old.closed()).await.expect("it ends");
    assert_eq!(ended.code, Code::Revoked);
    assert_eq!(tunnels.known(), known("old"), "its line is counted yet");
    tunnels.remove((&eu1(), "old"), &old, &ended);
    // A request that waits for its line goes, and then the last trace.
    let place = tunnels.park(&eu1()).unwrap();
    tunnels.forget(&eu1(), "other");
    assert!(tunnels.is_expected(&eu1()));
    tunnels.forget(&eu1(), "old");
    assert!(!tunnels.is_expected(&eu1()));
    assert_eq!(tunnels.known(), known(""));
    drop(place);
    assert!(tunnels.known().is_empty());
    // One whose lines were at other replicas only.
    tunnels.heard_elsewhere(&eu1(), clock::now());
    assert_eq!(tunnels.known(), known(""));
    tunnels.forget(&eu1(), "old");
    assert!(tunnels.known().is_empty());
    // A takeover that was judged late brings nothing back.
    tunnels.taken((&eu1(), "old"), takeover());
    assert!(tunnels.known().is_empty());
}

/// L13: a line that is expected in a moment is not told as an outage where no place to wait for it is left.
#[test]
fn who_finds_no_place_to_wait_is_told_so() {
    let tunnels = Tunnels::default();
    let refused = |name: &ClusterName| tunnels.park(name).err();
    assert_eq!(refused(&eu1()), Some(NoLine::Offline));
    let names: Vec<ClusterName> = (0..20).map(|n| format!("c{n}").parse().unwrap()).collect();
    let mut places = Vec::new();
    for name in &names {
        tunnels.heard_elsewhere(name, clock::now());
        places.extend((0..100).map(|_| tunnels.park(name).unwrap()));
        assert_eq!(refused(name), Some(NoLine::Full), "{name}");
    }
    // As many wait as may of all clusters.
    tunnels.heard_elsewhere(&eu1(), clock::now());
    assert_eq!(refused(&eu1()), Some(NoLine::Full));
    // Where none is expected, no place would help.
    tunnels.in_vain(&eu1());
    assert_eq!(refused(&eu1()), Some(NoLine::Offline));
    drop(places);
    assert_eq!(refused(&names[0]), None);
}
