//! Settings that a cluster's agent takes up: what `--wait` says while there is no agent.

use super::Home;
use super::hub::Hub;

#[test]
fn a_wait_for_an_agent_that_is_away_ends_at_its_time_and_the_setting_stays() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    assert_eq!(home.run(&["cluster", "add", "eu1"]).code, 0);
    let pause = ["cluster", "pause", "eu1", "--for", "1h", "--reason", "work"];
    for setting in [
        &pause[..],
        &["cluster", "resume", "eu1"],
        &["cluster", "git", "eu1", "line"],
        &["cluster", "agent-copy", "eu1"],
        &["cluster", "agent-copy", "eu1", "--remove"],
    ] {
        let waited = home.run(&[setting, &["--wait=1s"]].concat());
        waited.fails(6, "1s passed and the line of cluster eu1 is down");
        assert!(waited.err.contains("at most 1s"), "{waited:?}");
        assert_eq!(home.run(setting).code, 0, "{setting:?}");
    }
    let shown = home.run(&["cluster", "show", "eu1"]);
    assert!(shown.out.contains("over the line"), "{shown:?}");
}

/// Nothing is mended by an agent that is not there.
#[test]
fn a_window_says_that_an_agent_which_is_away_learns_of_it_later() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    assert_eq!(home.run(&["cluster", "add", "eu1"]).code, 0);
    let later = "its line is down, and its agent learns of it when it is heard again";
    let paused = home.run(&["cluster", "pause", "eu1", "--for", "1h", "--reason", "work"]);
    assert_eq!(paused.code, 0, "{paused:?}");
    let end = format!("; {later}; end it with: linesman cluster resume eu1\n");
    assert!(paused.err.ends_with(&end), "{paused:?}");
    let resumed = home.run(&["cluster", "resume", "eu1"]);
    let expected = format!("cluster eu1 is no longer paused; {later}\n");
    assert_eq!((resumed.code, resumed.err), (0, expected));
}
