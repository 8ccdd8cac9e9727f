use super::*;
use crate::wire::id::Digest;

fn release(engine: EngineKind, version: &str, base: Option<&str>) -> Release {
    Release::new(engine, version.parse().unwrap(), base).unwrap()
}

#[test]
fn a_release_is_where_its_project_has_it_and_a_mirror_has_it_in_the_same_places() {
    let flux = release(EngineKind::Flux, "v2.9.4", None);
    let at = "https://github.com/fluxcd/flux2/releases/download/v2.9.4";
    assert_eq!(flux.manifest, format!("{at}/install.yaml"));
    let list = format!("{at}/flux_2.9.4_checksums.txt");
    assert_eq!(flux.checksums.as_deref(), Some(list.as_str()));
    let argocd = release(
        EngineKind::Argocd,
        "3.2.6",
        Some("https://mirror.lan:8443/argo/"),
    );
    assert_eq!(
        argocd.manifest,
        "https://mirror.lan:8443/argo/v3.2.6/manifests/core-install.yaml"
    );
    assert_eq!(argocd.checksums, None);
    let full = argocd.full().unwrap();
    assert_eq!(
        full.manifest,
        "https://mirror.lan:8443/argo/v3.2.6/manifests/install.yaml"
    );
    assert_eq!(flux.full(), Err(ReleaseError::OneManifest));
}

#[test]
fn what_is_no_version_and_no_mirror_is_refused() {
    for text in [
        "",
        "2.9",
        "2.9.x",
        "2.9.4/../..",
        "latest",
        "v",
        "2.9.4.5",
        "2..4",
    ] {
        assert!(text.parse::<Version>().is_err(), "{text}");
    }
    for text in ["2.9.4", "v3.6.0-rc1", "2.0.0+build.1"] {
        assert!(text.parse::<Version>().is_ok(), "{text}");
    }
    let version: Version = "2.9.4".parse().unwrap();
    for (base, shown) in [
        ("http://mirror.lan", "http://mirror.lan"),
        ("https://", "https://"),
        ("mirror.lan", "mirror.lan"),
        ("https://u:p@mirror.lan", "mirror.lan"),
        ("https://u:p@w@mirror.lan/x", "mirror.lan/x"),
        ("https://mirror.lan/?a=b", "https://mirror.lan/?a=b"),
        ("https:///x", "https:///x"),
    ] {
        let refused = Release::new(EngineKind::Flux, version.clone(), Some(base));
        assert_eq!(refused, Err(ReleaseError::Base(shown.to_owned())));
    }
}

/// W45: an altered manifest, and one that nobody vouches for.
#[test]
fn an_altered_manifest_is_told_with_both_digests_and_an_unknown_one_with_its_own() {
    let [a, b] = [b"a", b"b"].map(|bytes| sha256_hex(bytes));
    let flux = release(EngineKind::Flux, "2.9.4", None);
    let list = format!(
        "{}  flux_2.9.4_linux_amd64.tar.gz\n{a} *install.yaml\n",
        "0".repeat(64)
    );
    let expected = flux.expected(None, Some(&list)).unwrap();
    assert_eq!(
        verify("install.yaml", b"a", expected.clone()),
        Ok(VerifiedBy::Checksums)
    );
    let said = verify("install.yaml", b"b", expected)
        .unwrap_err()
        .to_string();
    assert!(said.contains(&a) && said.contains(&b), "{said}");
    let unlisted = flux.expected(None, Some("junk\n"));
    assert_eq!(
        unlisted,
        Err(ReleaseError::Unlisted("install.yaml".to_owned()))
    );
    let unknown = release(EngineKind::Argocd, "3.99.0", None);
    assert_eq!(unknown.expected(None, None), Ok(None));
    let said = verify("core-install.yaml", b"a", None).unwrap_err();
    assert!(said.to_string().contains(&a), "{said}");
    assert_eq!(
        unknown.at_its_tag(),
        "git clone --depth 1 --branch v3.99.0 https://github.com/argoproj/argo-cd && sha256sum argo-cd/manifests/core-install.yaml"
    );
    let given = unknown.expected(Some(&b.to_uppercase()), None).unwrap();
    assert_eq!(
        verify("core-install.yaml", b"b", given),
        Ok(VerifiedBy::Given)
    );
    let known = release(EngineKind::Argocd, "3.2.6", None);
    let core = known.expected(None, None).unwrap().unwrap();
    let full = known.full().unwrap().expected(None, None).unwrap().unwrap();
    assert_eq!([core.1, full.1], [VerifiedBy::OurList; 2]);
    let listed = ARGOCD_MANIFESTS[0];
    assert_eq!([core.0.as_str(), full.0.as_str()], [listed.1, listed.2]);
}

/// It comes from the same place as the manifest, and proves nothing of that.
#[test]
fn a_list_that_a_mirror_has_is_the_mirrors_own_word() {
    let sum = sha256_hex(b"a");
    let list = format!("{sum}  install.yaml\n");
    for (base, by, said) in [
        (None, VerifiedBy::Checksums, "the release's checksums"),
        (
            Some("https://mirror.lan"),
            VerifiedBy::Mirror,
            "checksums that the mirror itself gave",
        ),
    ] {
        let flux = release(EngineKind::Flux, "2.9.4", base);
        let expected = flux.expected(None, Some(&list));
        assert_eq!(expected, Ok(Some((sum.clone(), by))));
        assert_eq!(by.as_str(), said);
        // Who gives the digest takes neither's word.
        let given = flux.expected(Some(&sum), Some(&list));
        assert_eq!(given, Ok(Some((sum.clone(), VerifiedBy::Given))));
    }
}

#[test]
fn the_least_kubernetes_is_that_of_the_last_minor_that_said_one() {
    let cases = [
        (EngineKind::Flux, "2.9.4", Some(33)),
        (EngineKind::Flux, "2.10.0", Some(33)),
        (EngineKind::Flux, "2.4.0", Some(28)),
        (EngineKind::Flux, "0.41.2", None),
        (EngineKind::Flux, "1.8.0", None),
        (EngineKind::Flux, "3.0.0", None),
        (EngineKind::Argocd, "3.2.6", Some(31)),
        (EngineKind::Argocd, "3.0.20", Some(29)),
        (EngineKind::Argocd, "2.14.0", None),
    ];
    for (engine, version, minor) in cases {
        assert_eq!(kubernetes(engine, version), minor, "{version}");
    }
}

/// The last import was the newest: 2.9.4 after 2.9.5 made new clusters begin with 2.9.4.
#[test]
fn the_newest_bundle_is_that_of_the_highest_version_however_they_were_imported() {
    let bundle = |n: u8, engine, version: &str| BundleView {
        digest: Digest::from_bytes([n; 32]),
        engine,
        version: version.to_owned(),
        objects: 1,
        images: Vec::new(),
        size: 1,
        kubernetes: None,
        imported_at: String::new(),
        origin: None,
    };
    let flux = |n, version| bundle(n, EngineKind::Flux, version);
    // As the store has them: the last import first.
    let imported = vec![
        flux(1, "latest"),
        flux(2, "2.9.4"),
        bundle(3, EngineKind::Argocd, "3.6.1"),
        flux(4, "2.11.0-rc.2"),
        flux(5, "2.9.5"),
        flux(6, "2.10.0+build.7"),
        flux(7, "2.11.0-rc.10"),
        // The same version with other controllers, imported before.
        flux(8, "2.9.5"),
        flux(9, "2.11.0-rc"),
        flux(10, "2.9"),
        flux(11, "2.11.0-1"),
    ];
    let of = |engine| {
        let own = newest_first(imported.clone(), engine);
        own.into_iter().map(|b| b.version).collect::<Vec<_>>()
    };
    assert_eq!(
        of(EngineKind::Flux),
        [
            "2.10.0+build.7",
            "2.9.5",
            "2.9.5",
            "2.9.4",
            "2.11.0-rc.10",
            "2.11.0-rc.2",
            "2.11.0-rc",
            "2.11.0-1",
            "latest",
            "2.9",
        ]
    );
    assert_eq!(of(EngineKind::Argocd), ["3.6.1"]);
    let own = newest_first(imported, EngineKind::Flux);
    let digests: Vec<_> = own[1..3].iter().map(|b| b.digest.clone()).collect();
    assert_eq!(digests, [5, 8].map(|n| Digest::from_bytes([n; 32])));
}
