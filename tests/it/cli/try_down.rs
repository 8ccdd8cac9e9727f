//! `make try-down`, as far as it goes without a cluster.

use std::fs;
use std::process::Command;

use super::{Home, Ran};

/// The command that it printed was about a file that it deleted in the next line, and then it said that nothing was left.
#[test]
fn what_stays_in_a_cluster_of_ones_own_goes_by_the_file_that_is_named() {
    let home = Home::new();
    let script = home.write("tests/try/run", include_str!("../../try/run"));
    let down = || {
        let mut command = Command::new("bash");
        Ran::of(&command.arg(&script).arg("down").output().unwrap())
    };
    home.write("target/try/given", "/home/ada/kubeconfig\n");
    home.write("target/try/adopt.yaml", "kind: List\n");
    let ran = down();
    let target = fs::canonicalize(home.path()).unwrap().join("target");
    let kept = target.join("try-adopt.yaml");
    let named = format!(
        "kubectl --kubeconfig /home/ada/kubeconfig delete -f {}\n",
        kept.display()
    );
    assert!(ran.code == 0 && ran.out.contains(&named), "{ran:?}");
    // The file has no part in it: the agent binds its role in the engine's namespace itself.
    let bound = "delete rolebindings -A --field-selector metadata.name=linesman-engine\n";
    assert!(ran.out.contains(bound), "{ran:?}");
    let nothing = "hub and cluster of make try are gone; packages, builds and the lab's programs stay (README.md)\n";
    assert!(!ran.out.contains(nothing), "{ran:?}");
    assert_eq!(fs::read_to_string(&kept).unwrap(), "kind: List\n");
    assert!(!target.join("try").exists());
    // It ended before anything was put there.
    home.write("target/try/given", "/home/ada/kubeconfig\n");
    assert_eq!(down().out, nothing);
}
