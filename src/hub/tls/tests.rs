use super::*;
use crate::hub::trust::Times;

const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH.saturating_add(Duration::days(20_000));

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("linesman-tls-{name}-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&path));
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn source() -> TlsSource {
    TlsSource::Own {
        names: names("hub.example", &[]),
    }
}

#[test]
fn the_ca_stays_and_the_leaf_is_renewed_at_sixty_days() {
    let data = directory("renew");
    let first = Tls::load(&data, source(), NOW).unwrap();
    let again = Tls::load(&data, source(), NOW + Duration::days(59)).unwrap();
    assert_eq!(
        (again.ca(), again.not_after(), again.ca_not_after()),
        (first.ca(), first.not_after(), Some(NOW + CA_LIFE))
    );
    let day = NOW + Duration::days(61);
    again.renew(day).unwrap();
    assert_eq!(again.not_after(), day + LEAF_LIFE);
    std::fs::remove_dir_all(data).unwrap();
}

/// A clock that was ahead for a moment leaves no certificate that is not valid yet once it is right, be the hub running or started.
#[test]
fn a_leaf_that_a_clock_ahead_made_is_made_again() {
    let data = directory("ahead");
    let valid = |tls: &Tls| {
        let served = tls.current.served();
        (served.leaf.not_before..served.leaf.not_after).contains(&NOW)
    };
    let (ahead, right) = (NOW + Duration::days(1000), NOW + Duration::seconds(1));
    let running = Tls::load(&data, source(), NOW).unwrap();
    let ca = running.ca();
    running.renew(ahead).unwrap();
    assert_eq!(running.not_after(), ahead + LEAF_LIFE);
    running.renew(right).unwrap();
    assert!(valid(&running));
    assert_eq!(running.not_after(), right + LEAF_LIFE);
    running.renew(ahead).unwrap();
    assert!(!valid(&running));
    let started = Tls::load(&data, source(), right).unwrap();
    assert!(valid(&started));
    assert_eq!(started.not_after(), right + LEAF_LIFE);
    assert_eq!([running.ca(), started.ca()], [ca.clone(), ca]);
    std::fs::remove_dir_all(data).unwrap();
}

/// Certificates are backdated by more than that.
#[test]
fn a_leaf_that_a_clock_ahead_by_hours_made_stays() {
    let data = directory("ahead-hours");
    let ahead = NOW + Duration::hours(12);
    let running = Tls::load(&data, source(), ahead).unwrap();
    running.renew(NOW).unwrap();
    let started = Tls::load(&data, source(), NOW).unwrap();
    assert_eq!(
        [running.not_after(), started.not_after()],
        [ahead + LEAF_LIFE; 2]
    );
    std::fs::remove_dir_all(data).unwrap();
}

/// Agents know the hub by it.
#[test]
fn a_ca_that_a_clock_ahead_made_stays_and_is_found_out() {
    let data = directory("ahead-ca");
    let ahead = NOW + Duration::days(1000);
    let first = Tls::load(&data, source(), ahead).unwrap();
    let again = Tls::load(&data, source(), NOW).unwrap();
    assert_eq!(again.ca(), first.ca());
    assert_eq!(again.not_after(), NOW + LEAF_LIFE);
    let begins = |now| begins_later(&data.join("ca.crt"), &again.ca(), now).unwrap();
    assert_eq!([begins(NOW), begins(ahead)], [Some(ahead - BACKDATE), None]);
    std::fs::remove_dir_all(data).unwrap();
}

/// A full disk or a crash left half a certificate, which all may read, where the key is written first.
#[test]
fn a_key_is_its_owners_alone_whatever_was_left() {
    use std::os::unix::fs::PermissionsExt as _;
    let data = directory("left");
    let mode = |name: &str| {
        let file = std::fs::metadata(data.join(name)).unwrap();
        file.permissions().mode() & 0o777
    };
    for part in ["ca.part", "tls.part"] {
        let path = data.join(part);
        std::fs::write(&path, "-----BEGIN CERT").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    Tls::load(&data, source(), NOW).unwrap();
    assert_eq!(["ca.key", "tls.key"].map(mode), [0o600; 2]);
    let left = ["ca.part", "tls.part"].map(|part| data.join(part).exists());
    assert_eq!(left, [false; 2]);
    std::fs::remove_dir_all(data).unwrap();
}

/// H16: told first, then in use, then told alone; the same over a start at any moment, and cut off in the middle.
#[test]
fn another_ca_is_told_before_it_serves_and_the_one_before_for_a_while_after() {
    let data = directory("succeed");
    let first = Tls::load(&data, source(), NOW).unwrap();
    let old = first.ca();
    let at = |seconds: i64| NOW + Duration::seconds(seconds);
    let times = |now, used, ends| Times {
        now: at(now),
        used: at(used),
        ends: at(ends),
    };
    let (before, after) = succeed(&data, times(0, 300, 900)).unwrap();
    assert_ne!(before, after);
    let told = std::fs::read_to_string(data.join("ca.crt")).unwrap();
    let new = told.strip_prefix(&old).unwrap().to_owned();
    let is_of = |tls: &Tls, ca: &str| {
        use x509_parser::extensions::ParsedExtension::{
            AuthorityKeyIdentifier, SubjectKeyIdentifier,
        };
        let leaf = tls.current.resolve_now().cert[0].clone();
        let ca = CertificateDer::from_pem_slice(ca.as_bytes()).unwrap();
        let ids = |certificate: &CertificateDer<'_>| {
            let (_, parsed) = x509_parser::parse_x509_certificate(certificate).unwrap();
            let mut ids = (None, None);
            for extension in parsed.extensions() {
                match extension.parsed_extension() {
                    AuthorityKeyIdentifier(by) => {
                        ids.0 = by.key_identifier.as_ref().map(|id| id.0.to_vec());
                    }
                    SubjectKeyIdentifier(id) => ids.1 = Some(id.0.to_vec()),
                    _ => {}
                }
            }
            ids
        };
        let (by, own) = (ids(&leaf).0, ids(&ca).1);
        assert!(own.is_some());
        by == own
    };
    let looked = |seconds: i64, ca: &str, by: &str| {
        let started = Tls::load(&data, source(), at(seconds)).unwrap();
        first.renew(at(seconds)).unwrap();
        for tls in [&started, &first] {
            assert_eq!(tls.ca(), ca, "{seconds}");
            assert!(is_of(tls, by), "{seconds}");
        }
    };
    looked(1, &told, &old);
    looked(299, &told, &old);
    // Cut off when the key was written and nothing else.
    let next = std::fs::read(data.join("ca.next")).unwrap();
    looked(300, &(new.clone() + &old), &new);
    std::fs::write(data.join("ca.next"), &next).unwrap();
    looked(301, &(new.clone() + &old), &new);
    looked(899, &(new.clone() + &old), &new);
    looked(900, &new, &new);

    // One that is not used yet gives way to the next.
    succeed(&data, times(1000, 2000, 3000)).unwrap();
    let (_, last) = succeed(&data, times(1001, 1001, 1002)).unwrap();
    first.renew(at(1002)).unwrap();
    assert_eq!(succession::fingerprint(&first.ca()).unwrap(), last);
    assert!(is_of(&first, &first.ca()));
    std::fs::remove_dir_all(data).unwrap();
}

/// Both ends say which fault it is.
#[tokio::test]
async fn who_speaks_tls_1_2_alone_is_refused_and_told_so() {
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let data = directory("versions");
    let tls = Tls::load(&data, source(), NOW).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(tls.ca().as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let old = rustls::ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS12])
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (client, server) = tokio::io::duplex(16 << 10);
    let name = rustls_pki_types::ServerName::try_from("hub.example").unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(old));
    let acceptor = tokio_rustls::TlsAcceptor::from(tls.server_config());
    let (client, server) = tokio::join!(connector.connect(name, client), acceptor.accept(server));
    let client = client.err().unwrap().to_string();
    assert_eq!(client, "received fatal alert: ProtocolVersion");
    assert!(is_old(&server.err().unwrap()));
    std::fs::remove_dir_all(data).unwrap();
}

#[test]
fn a_ca_without_its_key_is_an_error_and_not_a_new_ca() {
    let data = directory("half");
    Tls::load(&data, source(), NOW).unwrap();
    std::fs::remove_file(data.join("ca.key")).unwrap();
    let error = Tls::load(&data, source(), NOW).err().unwrap().to_string();
    assert!(error.contains("restore the key"), "{error}");
    std::fs::remove_dir_all(data).unwrap();
}

/// Every cluster trusts it, and its key cannot be made again.
#[test]
fn a_ca_whose_certificate_was_lost_is_an_error_and_its_key_stays() {
    let data = directory("lost-crt");
    Tls::load(&data, source(), NOW).unwrap();
    let (cert, key) = (data.join("ca.crt"), data.join("ca.key"));
    let (pem, kept) = (read(&cert).unwrap(), read(&key).unwrap());
    std::fs::remove_file(&cert).unwrap();
    std::fs::write(data.join("hub.key"), "").unwrap();
    let error = Tls::load(&data, source(), NOW).err().unwrap();
    let CannotStart { next, .. } = error.downcast().unwrap();
    assert!(next.starts_with("restore "), "{next}");
    assert_eq!((read(&key).unwrap(), cert.exists()), (kept, false));
    std::fs::write(&cert, &pem).unwrap();
    assert_eq!(Tls::load(&data, source(), NOW).unwrap().ca(), pem);
    // A first start that was cut off between the two is finished.
    for file in [&cert, &data.join("hub.key")] {
        std::fs::remove_file(file).unwrap();
    }
    assert_ne!(Tls::load(&data, source(), NOW).unwrap().ca(), pem);
    std::fs::remove_dir_all(data).unwrap();
}

/// What the hub told clusters says that it had one.
#[test]
fn a_ca_of_which_all_was_lost_is_made_anew_only_by_the_verb_for_it() {
    let data = directory("lost-both");
    let ca = Tls::load(&data, source(), NOW).unwrap().ca();
    let keys = crate::hub::HubKeys::new(crate::keys::KeyPair::from_seed(&[1; 32]));
    let told = crate::wire::api::HubRef {
        id: "h".to_owned(),
        urls: vec!["https://hub.example".to_owned()],
        ca: ca.clone(),
        keyset: keys.keyset(NOW.unix_timestamp()),
    };
    trust::current(&data, &told, &keys, NOW).unwrap();
    for name in ["ca.crt", "ca.key"] {
        std::fs::remove_file(data.join(name)).unwrap();
    }
    let error = Tls::load(&data, source(), NOW).err().unwrap();
    let CannotStart { next, .. } = error.downcast().unwrap();
    assert!(next.contains("linesman hub rotate ca --in 0"), "{next}");
    assert!(!data.join("ca.key").exists());
    let times = Times {
        now: NOW,
        used: NOW,
        ends: NOW,
    };
    let prints = succeed(&data, times).unwrap();
    let other = Tls::load(&data, source(), NOW).unwrap().ca();
    let print = |pem: &str| succession::fingerprint(pem).unwrap();
    assert_eq!(prints, (print(&ca), print(&other)));
    assert_ne!(ca, other);
    std::fs::remove_dir_all(data).unwrap();
}

/// It goes into adoption YAML and kubeconfigs, where nobody looks at it.
#[test]
fn a_given_ca_that_is_none_is_refused() {
    let data = directory("given-ca");
    Tls::load(&data, source(), NOW).unwrap();
    let ca = data.join("given.pem");
    let files = TlsSource::Files {
        cert: data.join("tls.crt"),
        key: data.join("tls.key"),
        ca: Some(ca.clone()),
    };
    let load = || Tls::load(&data, files.clone(), NOW);
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (text, why) in [
        ("garbage\n", "holds no certificate"),
        (broken, "cannot be read"),
    ] {
        std::fs::write(&ca, text).unwrap();
        let CannotStart { what, .. } = load().err().unwrap().downcast().unwrap();
        let start = format!("{} of --tls-ca {why}", ca.display());
        assert!(what.starts_with(&start), "{what}");
    }
    std::fs::copy(data.join("ca.crt"), &ca).unwrap();
    let tls = load().unwrap();
    assert_eq!(tls.ca(), read(&ca).unwrap());
    let doubts = ["https://hub.example:8443", "https://other.example"];
    let doubts = doubts.map(|url| tls.doubt(url, NOW).is_some());
    assert_eq!(doubts, [false, true]);
    std::fs::remove_dir_all(data).unwrap();
}

/// So it is in a Secret of an issuer that everybody trusts; but one that is being written keeps the CA that clusters know.
#[test]
fn an_empty_file_of_a_given_ca_is_none_unless_clusters_know_one() {
    let data = directory("empty-ca");
    let own = Tls::load(&data, source(), NOW).unwrap().ca();
    let ca = data.join("given.pem");
    let files = TlsSource::Files {
        cert: data.join("tls.crt"),
        key: data.join("tls.key"),
        ca: Some(ca.clone()),
    };
    let load = || Tls::load(&data, files.clone(), NOW);
    std::fs::write(&ca, "\n").unwrap();
    assert_eq!(load().unwrap().ca(), "");
    std::fs::write(&ca, &own).unwrap();
    let running = load().unwrap();
    let keys = crate::hub::HubKeys::new(crate::keys::KeyPair::from_seed(&[1; 32]));
    let told = crate::wire::api::HubRef {
        id: "h".to_owned(),
        urls: vec!["https://hub.example".to_owned()],
        ca: own.clone(),
        keyset: keys.keyset(NOW.unix_timestamp()),
    };
    trust::current(&data, &told, &keys, NOW).unwrap();
    std::fs::write(&ca, "").unwrap();
    assert!(running.renew(NOW).is_err());
    assert_eq!(running.ca(), own);
    let CannotStart { what, .. } = load().err().unwrap().downcast().unwrap();
    assert!(what.contains("of --tls-ca is empty"), "{what}");
    std::fs::remove_dir_all(data).unwrap();
}

#[test]
fn private_keys_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let data = directory("mode");
    Tls::load(&data, source(), NOW).unwrap();
    for name in ["ca.key", "tls.key"] {
        let mode = std::fs::metadata(data.join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    std::fs::remove_dir_all(data).unwrap();
}

#[test]
fn certificate_and_key_of_different_pairs_are_refused() {
    let (one, two) = (directory("one"), directory("two"));
    Tls::load(&one, source(), NOW).unwrap();
    Tls::load(&two, source(), NOW).unwrap();
    // It names what the operator gave, and what to give.
    let refused = |cert: &Path, key: &Path, why: &str| {
        let files = TlsSource::Files {
            cert: cert.to_owned(),
            key: key.to_owned(),
            ca: None,
        };
        let refused = Tls::load(&one, files, NOW).err().unwrap();
        let CannotStart { what, next } = refused.downcast().unwrap();
        let start = format!("--tls-cert and --tls-key cannot be used: {why}");
        assert!(what.starts_with(&start), "{what}");
        assert!(next.starts_with("give the certificate in PEM"), "{next}");
        what
    };
    let (cert, key) = (one.join("tls.crt"), two.join("tls.key"));
    let why = format!(
        "{} and {} do not belong together",
        cert.display(),
        key.display()
    );
    assert!(refused(&cert, &key, &why).ends_with(&why));
    let garbage = one.join("garbage.crt");
    std::fs::write(&garbage, "garbage\n").unwrap();
    let why = format!("{} holds no certificate", garbage.display());
    refused(&garbage, &key, &why);
    for data in [one, two] {
        std::fs::remove_dir_all(data).unwrap();
    }
}

/// One that is to follow is told beside the present one, in either order.
#[test]
fn of_two_cas_the_end_of_the_last_counts() {
    let later = NOW + Duration::days(1);
    let [one, other] = [NOW, later].map(|at| new_ca(at).unwrap().0);
    let ends = [format!("{one}{other}"), format!("{other}{one}")]
        .map(|pem| last_end(Path::new("ca.crt"), &pem).unwrap());
    assert_eq!(ends, [later + CA_LIFE; 2]);
}
