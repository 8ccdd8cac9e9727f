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
    let mixed = TlsSource::Files {
        cert: one.join("tls.crt"),
        key: two.join("tls.key"),
        ca: None,
    };
    assert!(Tls::load(&one, mixed, NOW).is_err());
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
