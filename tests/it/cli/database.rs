//! The program with its hub's records in PostgreSQL, or on a disk that takes no more.

use std::process::{Command, Stdio};

use super::{Home, Ran};
use crate::hub::support::TestHub;
use crate::postgres;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_in_postgres_is_verified_beside_the_hub() {
    let (hub, url) = TestHub::on_postgres("pg-verify").await;
    hub.add("eu1").await;
    hub.add("us1").await;
    let home = Home::new();
    let (data, file) = (hub.data().to_str().unwrap(), home.write("url", &url));
    let verify = ["audit", "verify", "--data", data];
    let ran = home.run(&verify);
    let says = ran.err.contains("give --database-url-file too");
    assert!(ran.code == 2 && says, "{ran:?}");
    let args = [
        &verify[..],
        &["--database-url-file", file.to_str().unwrap()],
    ]
    .concat();
    let whole = home.run(&args);
    assert!(
        whole.code == 0 && whole.out.starts_with("the audit is whole: "),
        "{whole:?}"
    );
    postgres::execute(
        &url,
        "UPDATE audit SET target = 'someone else' WHERE seq = 2",
    )
    .await;
    home.run(&args).fails(1, "record 2 was changed");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_says_why_it_does_not_get_its_database() {
    let (hub, url) = TestHub::on_postgres("pg-taken").await;
    let home = Home::new();
    let start = |url: &str| {
        let (file, data) = (home.write("url", url), home.path().join("data"));
        home.run(&[
            "hub",
            "--data",
            data.to_str().unwrap(),
            "--database-url-file",
            file.to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
            "--git-listen",
            "127.0.0.1:0",
            "--health-listen",
            "127.0.0.1:0",
        ])
    };
    let ran = start("postgres://linesman:hunter2@db.example.org");
    ran.fails(2, "it names no database");
    assert!(!ran.err.contains("hunter2"), "{ran:?}");
    let second = start(&url);
    let says = second.err.contains("another hub runs on the database");
    assert!(second.code == 1 && says, "{second:?}");
    let wrong = start(&postgres::with_wrong_password(&url).await);
    let says = wrong.err.contains("password authentication failed");
    assert!(wrong.code == 1 && says, "{wrong:?}");
    assert!(!wrong.err.contains("hunter2"), "{wrong:?}");
    let next = "next:  correct user and password in --database-url-file\n";
    assert!(wrong.err.ends_with(next), "{wrong:?}");
    hub.stop().await;
}

/// Beyond a bound of the shell's on the size of files, writes fail as on a disk that does.
#[test]
fn a_hub_whose_disk_takes_no_more_says_so_and_where() {
    let home = Home::new();
    let data = home.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let data = data.to_str().unwrap();
    let anywhere = ["--listen", "--git-listen", "--health-listen"];
    let anywhere = anywhere.map(|flag| [flag, "127.0.0.1:0"]).concat();
    let plain = home.linesman(&[&["hub", "--data", data][..], &anywhere].concat());
    let mut bound = Command::new("sh");
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"";
    bound.arg("-c").arg(script);
    bound.arg(plain.get_program()).args(plain.get_args());
    bound
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap());
    bound.stdin(Stdio::null()).current_dir(home.path());
    let ran = Ran::of(&bound.output().unwrap());
    ran.fails(1, "disk I/O error");
    let mut lines = ran.err.lines();
    let said = lines.find(|line| line.starts_with("error: ")).unwrap();
    assert_eq!(said.matches("disk I/O error").count(), 1, "{ran:?}");
    let next = format!("next:  the disk of {data} is full or failing; see: df -h {data}\n");
    assert!(ran.err.ends_with(&next), "{ran:?}");
}
