//! A name that the hub does not have.

use super::Home;
use super::hub::Hub;

/// A slip of the keyboard names what is there, to whom that is known.
#[test]
fn a_name_that_is_not_there_is_told_with_those_that_are_nearly_so() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    assert_eq!(home.run(&["cluster", "add", "eu1"]).code, 0);
    assert_eq!(home.run(&["user", "add", "ada"]).code, 0);
    let create = ["token", "create", "--user", "ada", "--title", "t"];
    let made = home.run(&[&create[..], &["--file", "ada.token"]].concat());
    assert_eq!(made.code, 0, "{made:?}");
    let said = |args: &[&str]| {
        let ran = home.run(args);
        assert_eq!(ran.code, 3, "{ran:?}");
        ran.err
    };
    for args in [
        &["cluster", "show", "eu2"][..],
        &["cluster", "pause", "ue1", "--for", "1h", "--reason", "x"],
        &["kubeconfig", "eu"],
        &["heal", "list", "eu2"],
    ] {
        let next = "\nnext:  did you mean eu1? see: linesman cluster list\n";
        let err = said(args);
        assert!(err.ends_with(next), "{err}");
    }
    let far = said(&["cluster", "show", "production"]);
    assert!(
        far.ends_with("\nnext:  see: linesman cluster list\n"),
        "{far}"
    );
    let user = said(&["user", "remove", "adda", "--yes"]);
    assert!(user.contains("did you mean ada? "), "{user}");
    // Without a role nobody lists clusters, and so learns of none.
    let ada = home.run(&["cluster", "show", "eu2", "--token-file", "ada.token"]);
    assert!(ada.code != 0 && !ada.err.contains("eu1"), "{ada:?}");
}
