use proptest::prelude::*;

use super::*;

const A: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDDa4TzYLxEs4t5GNgZDd5FvFrRVzyu6cb/dxHtXxmIn";
const A_PRINT: &str = "SHA256:xnXTk9NMcNpouJpLp+C2eX17Tus5onWem+sTLAjZHXY";
const B: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIkDjP/LmTm+EUZ649jB8xyHzobk2Wr5zb9DOdIqoHFb";
const ECDSA: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBJPZAx//MOnge3271HaKDxlaaksaK4aD4fvEyr/5lwommAC9oMXnyDlXbA4LCrPsmmS4cpuDxU+xXmq81r3f2ng=";
const RSA: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQDlKtWwRsk2zfhYJA2r8tcfjWXIB2HlAHwheVQlRtCo85ORn+ey8ZPX+R/4QknwQ/SuSWxHzWusWwkz31PQNuLfYL2skMNbNItL3WWK+2kwOBygc05HLF13qYEXBNPUQN84ff5odgwIGtxtFYRu8pvmDOGThyVlhQRJ+cxZNlxBSJ/mx4bVdoz/ll60zFHJq4GhQy9GZTuViLWDNlzVnZofi4lopvqZDMpVhjDgynUYYJGEXdH5n96AvW6Kd2zdCxIMmTIgJ4X4fbUrgq1SwAL7Ra4ebfWudv0y37qNdZSj/BnqQqZV3jYx/TKOyc0/M+MxF+IZnoQJUl4MBS8g5DBP";

fn key(text: &str) -> PublicKey {
    PublicKey::from_openssh(text).unwrap()
}

fn check(text: &str, host: &str, port: u16, presented: &str) -> Verdict {
    KnownHosts::parse(text)
        .unwrap()
        .check(host, port, &key(presented))
}

fn wrong() -> Verdict {
    Verdict::Wrong {
        expected: vec![A_PRINT.to_owned()],
    }
}

#[test]
fn hosts_and_ports_are_matched() {
    use Verdict::{Known, Unlisted};
    let table = [
        ("git.example.com", "git.example.com", 22, Known),
        ("git.example.com", "GIT.Example.com", 22, Known),
        ("git.example.com", "git.example.com", 2222, Unlisted),
        ("git.example.com", "other.example.com", 22, Unlisted),
        ("[git.example.com]:2222", "git.example.com", 2222, Known),
        ("[git.example.com]:2222", "git.example.com", 22, Unlisted),
        ("[git.example.com]:22", "git.example.com", 22, Known),
        ("a,b,git.example.com", "b", 22, Known),
        ("*.example.com", "git.example.com", 22, Known),
        ("*.example.com", "example.com", 22, Unlisted),
        ("*", "git.example.com", 2222, Unlisted),
        ("[*]:2222", "git.example.com", 2222, Known),
        ("git?.example.com", "git1.example.com", 22, Known),
        ("git?.example.com", "git.example.com", 22, Unlisted),
        (
            "*.example.com,!git.example.com",
            "git.example.com",
            22,
            Unlisted,
        ),
        (
            "!git.example.com,*.example.com",
            "ci.example.com",
            22,
            Known,
        ),
        ("!git.example.com", "ci.example.com", 22, Unlisted),
        ("[::1]:2222", "::1", 2222, Known),
        ("::1", "::1", 22, Known),
        ("10.0.0.1", "10.0.0.1", 22, Known),
    ];
    for (hosts, host, port, verdict) in table {
        assert_eq!(
            check(&format!("{hosts} {A}"), host, port, A),
            verdict,
            "{hosts} for {host}:{port}"
        );
    }
}

#[test]
fn hashed_names_that_ssh_keygen_made_are_matched() {
    let text = format!(
        "|1|a/Q+WCh3odKEyUQ+6E83Cmf+TUU=|M3fLtVnPERe9rtnqnAnsVpHe3W4= {A}\n\
         |1|TCJVAY0i6AQuNO+1WOHrdO3E/QA=|BtmlGcMwDtOMt02SWKY85FJKROM= {B}\n"
    );
    assert_eq!(check(&text, "git.example.com", 22, A), Verdict::Known);
    assert_eq!(check(&text, "git.example.com", 2222, B), Verdict::Known);
    assert_eq!(check(&text, "git.example.com", 22, B), wrong());
    assert_eq!(check(&text, "git.example.org", 22, A), Verdict::Unlisted);
}

#[test]
fn a_wrong_key_names_what_was_expected() {
    assert_eq!(check(&format!("h {A}"), "h", 22, B), wrong());
    assert_eq!(check(&format!("h {A}"), "h", 22, ECDSA), wrong());
    let both = format!("h {A}\nh {ECDSA}\n");
    assert_eq!(check(&both, "h", 22, ECDSA), Verdict::Known);
}

#[test]
fn a_revoked_key_is_refused_even_where_another_line_lists_it() {
    let text = format!("# rotated\n\nh {A}\n@revoked * {A}\nh {B} new key\n");
    assert_eq!(check(&text, "h", 22, A), Verdict::Revoked);
    assert_eq!(check(&text, "h", 22, B), Verdict::Known);
    let hosts = KnownHosts::parse(&text).unwrap();
    assert_eq!(hosts.keys("h", 22), [&key(B)]);
}

#[test]
fn a_certificate_authority_is_understood_and_not_trusted() {
    let text = format!("@cert-authority *.example.com {A}");
    assert_eq!(
        check(&text, "git.example.com", 22, A),
        Verdict::AuthorityOnly
    );
    let hosts = KnownHosts::parse(&text).unwrap();
    assert!(hosts.has_authority("git.example.com", 22));
    assert_eq!(
        hosts.keys("git.example.com", 22),
        Vec::<&PublicKey>::default()
    );
    let with_key = format!("{text}\ngit.example.com {B}");
    assert_eq!(check(&with_key, "git.example.com", 22, B), Verdict::Known);
}

#[test]
fn rsa_lines_are_read() {
    assert_eq!(check(&format!("h {RSA}"), "h", 22, RSA), Verdict::Known);
}

#[test]
fn a_broken_line_is_named() {
    let table = [
        (
            "h".to_owned(),
            "the key is missing: a line reads 'host type base64'",
        ),
        (
            "h ssh-ed25519".to_owned(),
            "the key is missing: a line reads 'host type base64'",
        ),
        (
            "h ssh-ed25519 AAAA".to_owned(),
            "the key is not a valid 'type base64' pair",
        ),
        (
            format!("h ssh-rsa {}", A.split_once(' ').unwrap().1),
            "the key is not a valid 'type base64' pair",
        ),
        (
            format!("@trusted h {A}"),
            "the marker is neither @revoked nor @cert-authority",
        ),
        (format!("|1|x {A}"), "the hashed host is not '|1|salt|hash'"),
        (
            format!("a,,b {A}"),
            "a host pattern is empty or not 'host' or '[host]:port'",
        ),
        (
            format!("[h]2222 {A}"),
            "a host pattern is empty or not 'host' or '[host]:port'",
        ),
        (
            format!("[h]:99999 {A}"),
            "a host pattern is empty or not 'host' or '[host]:port'",
        ),
        (
            format!("h {A} {B}"),
            "two keys on one line; write one key a line",
        ),
    ];
    for (line, reason) in table {
        let text = format!("# first\nh {A}\n{line}\n");
        let error = KnownHostsError { line: 3, reason };
        assert_eq!(KnownHosts::parse(&text), Err(error), "{line}");
    }
}

#[test]
fn our_own_line_is_found_again() {
    for port in [22, 2222] {
        let public = Public::from_openssh(A).unwrap();
        let line = known_hosts_line("Hub.Example.com", port, public);
        assert_eq!(check(&line, "hub.example.com", port, A), Verdict::Known);
    }
    let public = Public::from_openssh(A).unwrap();
    assert_eq!(known_hosts_line("h", 2222, public), format!("[h]:2222 {A}"));
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_or_the_matcher_panic(text in "\\PC{0,200}", host in "\\PC{0,20}", port: u16) {
        if let Ok(hosts) = KnownHosts::parse(&text) {
            hosts.check(&host, port, &key(A));
        }
    }

    #[test]
    fn no_host_list_makes_the_matcher_panic(list in "[a-z*?!,|\\[\\]:0-9]{1,60}", host in "[a-z0-9.:]{0,20}", port: u16) {
        if let Ok(hosts) = KnownHosts::parse(&format!("{list} {A}")) {
            let verdict = hosts.check(&host, port, &key(A));
            prop_assert_eq!(verdict == Verdict::Known, hosts.keys(&host, port).len() == 1);
        }
    }

    #[test]
    fn a_pattern_of_its_own_letters_matches(host in "[a-z0-9.-]{1,40}", port: u16) {
        let text = format!("{} {A}", address(&host, port));
        prop_assert_eq!(check(&text, &host, port, A), Verdict::Known);
    }

    #[test]
    fn stars_match_in_reasonable_time(stars in 1_usize..40, host in "a{1,60}") {
        let pattern = format!("{}b", "a*".repeat(stars));
        prop_assert!(!glob(&pattern, &host));
    }
}
