use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use reqwest::dns::{Addrs, Name, Resolving};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpListener;

use super::*;

/// Returns the next answer at each look-up.
#[derive(Clone, Default)]
struct ScriptedDns {
    answers: Arc<Mutex<Vec<Vec<&'static str>>>>,
    look_ups: Arc<AtomicUsize>,
}

impl ScriptedDns {
    fn new(answers: &[&[&'static str]]) -> Self {
        let answers = answers.iter().rev().map(|answer| answer.to_vec()).collect();
        Self {
            answers: Arc::new(Mutex::new(answers)),
            ..Self::default()
        }
    }
}

impl Resolve for ScriptedDns {
    fn resolve(&self, _: Name) -> Resolving {
        self.look_ups.fetch_add(1, Ordering::SeqCst);
        let answer = self.answers.lock().unwrap().pop().unwrap();
        let addresses: Vec<SocketAddr> = answer
            .into_iter()
            .map(|address| SocketAddr::new(address.parse().unwrap(), 0))
            .collect();
        Box::pin(async move { Ok(Box::new(addresses.into_iter()) as Addrs) })
    }
}

fn policy(exceptions: &[&str]) -> AddressPolicy {
    AddressPolicy::new(exceptions.iter().map(|text| text.parse().unwrap()))
}

fn client(policy: &AddressPolicy, dns: &ScriptedDns) -> reqwest::Client {
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let builder = reqwest::Client::builder().tls_backend_preconfigured(tls);
    policy.guard_with(builder, dns.clone()).build().unwrap()
}

/// Returns the cause of an error, if it is a refused address.
fn refused<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a RefusedAddress> {
    error.downcast_ref().or_else(|| refused(error.source()?))
}

#[test]
fn addresses_are_classified() {
    use AddressKind::*;
    let cases = [
        ("140.82.121.6", Public),
        ("2606:50c0:8000::153", Public),
        ("127.0.0.1", Loopback),
        ("127.255.1.2", Loopback),
        ("::1", Loopback),
        ("10.0.0.1", Private),
        ("172.16.0.1", Private),
        ("172.31.255.255", Private),
        ("172.32.0.1", Public),
        ("192.168.1.1", Private),
        ("100.64.0.1", Private),
        ("fd12::1", Private),
        ("fec0::1", Private),
        ("169.254.169.254", LinkLocal),
        ("fe80::1", LinkLocal),
        ("febf::1", LinkLocal),
        ("100.100.100.200", Metadata),
        ("192.0.0.192", Metadata),
        ("168.63.129.16", Metadata),
        ("fd00:ec2::254", Metadata),
        ("0.0.0.0", Unspecified),
        ("0.1.2.3", Unspecified),
        ("::", Unspecified),
        ("224.0.0.1", Multicast),
        ("ff02::1", Multicast),
        ("255.255.255.255", Reserved),
        ("240.0.0.1", Reserved),
        ("198.18.0.1", Reserved),
        ("203.0.113.7", Reserved),
        ("2001:db8::1", Reserved),
        ("2001::1", Reserved),
        ("100::1", Reserved),
        ("64:ff9b:1::1", Reserved),
        ("::ffff:0:7f00:1", Reserved),
        // These contain the IPv4 address that they are routed to.
        ("::ffff:127.0.0.1", Loopback),
        ("::ffff:140.82.121.6", Public),
        ("::127.0.0.1", Loopback),
        ("64:ff9b::10.0.0.1", Private),
        ("64:ff9b::169.254.169.254", LinkLocal),
        ("64:ff9b::140.82.121.6", Public),
        ("2002:7f00:1::", Loopback),
        ("2002:a9fe:a9fe::1", LinkLocal),
    ];
    for (address, kind) in cases {
        assert_eq!(
            AddressKind::classify(address.parse().unwrap()),
            kind,
            "{address}"
        );
    }
}

proptest! {
    /// No spelling in IPv6 changes what an IPv4 address is.
    #[test]
    fn embedded_address_has_the_kind_of_its_ipv4_address(bits in 2u32..) {
        let address = Ipv4Addr::from(bits);
        let kind = AddressKind::classify(IpAddr::V4(address));
        for spelling in [format!("::ffff:{address}"), format!("::{address}"), format!("64:ff9b::{address}")] {
            prop_assert_eq!(AddressKind::classify(spelling.parse().unwrap()), kind, "{}", spelling);
        }
    }
}

#[test]
fn literal_address_is_refused_in_every_spelling() {
    let spellings = [
        "127.0.0.1",
        "127.1",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "127.0.0.1.",
        "%31%32%37.0.0.1",
        "127。0。0。1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "user@127.0.0.1",
        "127.0.0.1:8080",
    ];
    for host in spellings {
        let url: Url = format!("http://{host}/").parse().unwrap();
        let error = policy(&[]).check_url(&url).unwrap_err();
        assert_eq!(error.kind, AddressKind::Loopback, "{host}");
    }
    for host in ["0", "0.0.0.0", "[::]"] {
        let url: Url = format!("http://{host}/").parse().unwrap();
        assert_eq!(
            policy(&[]).check_url(&url).unwrap_err().kind,
            AddressKind::Unspecified,
            "{host}"
        );
    }
}

#[test]
fn public_address_and_name_pass_the_check_of_urls() {
    for host in [
        "140.82.121.6",
        "[2606:50c0:8000::153]",
        "github.com",
        "localhost",
    ] {
        policy(&[])
            .check_url(&format!("https://{host}/").parse().unwrap())
            .unwrap();
    }
}

#[test]
fn network_allows_its_addresses_in_every_spelling() {
    let policy = policy(&["10.20.0.0/16", "169.254.169.254"]);
    for host in [
        "10.20.3.4",
        "[::ffff:10.20.3.4]",
        "[64:ff9b::a14:304]",
        "169.254.169.254",
    ] {
        policy
            .check_url(&format!("http://{host}/").parse().unwrap())
            .unwrap();
    }
    for host in ["10.21.0.1", "169.254.169.253", "127.0.0.1"] {
        assert!(
            policy
                .check_url(&format!("http://{host}/").parse().unwrap())
                .is_err(),
            "{host}"
        );
    }
}

#[test]
fn address_with_a_port_allows_that_port_only() {
    let policy = policy(&["127.0.0.1:11434", "[fd12::1]:80"]);
    for url in [
        "http://127.0.0.1:11434/v1",
        "https://[::ffff:127.0.0.1]:11434",
        "http://2130706433:11434",
        "http://[fd12::1]",
    ] {
        policy.check_url(&url.parse().unwrap()).unwrap();
    }
    for url in [
        "http://127.0.0.1/",
        "http://127.0.0.1:11435/",
        "http://127.0.0.2:11434/",
        "https://[fd12::1]/",
    ] {
        assert!(policy.check_url(&url.parse().unwrap()).is_err(), "{url}");
    }
    assert!(
        policy
            .check_address("localhost", "127.0.0.1".parse().unwrap())
            .is_err(),
        "a name may be at any port"
    );
}

#[test]
fn host_allows_its_private_addresses_but_no_metadata() {
    let policy = policy(&["GitLab.internal"]);
    let check = |host: &str, address: &str| policy.check_address(host, address.parse().unwrap());
    for host in ["gitlab.internal", "GITLAB.INTERNAL", "gitlab.internal."] {
        check(host, "10.0.0.1").unwrap();
        check(host, "127.0.0.1").unwrap();
        for address in [
            "169.254.169.254",
            "fd00:ec2::254",
            "0.0.0.0",
            "100.100.100.200",
        ] {
            assert!(check(host, address).is_err(), "{address}");
        }
    }
    for host in ["evil.gitlab.internal", "xgitlab.internal", "internal"] {
        assert!(check(host, "10.0.0.1").is_err(), "{host}");
    }
}

#[test]
fn exception_is_a_network_an_address_or_a_name() {
    let parse = |text: &str| text.parse::<AddressException>();
    let network = |text: &str| AddressException::Network(text.parse().unwrap());
    assert_eq!(parse("10.0.0.0/8"), Ok(network("10.0.0.0/8")));
    assert_eq!(parse("127.0.0.1"), Ok(network("127.0.0.1/32")));
    assert_eq!(parse("2130706433"), Ok(network("127.0.0.1/32")));
    assert_eq!(parse("fd12::/16"), Ok(network("fd12::/16")));
    assert_eq!(
        parse("[fd12::1]:80"),
        Ok(AddressException::Socket("[fd12::1]:80".parse().unwrap()))
    );
    assert_eq!(
        parse("Gitlab.Internal."),
        Ok(AddressException::Host("gitlab.internal".into()))
    );
    for text in [
        "",
        "10.0.0.0/33",
        "a/b",
        "http://a",
        "a:80",
        "user@a",
        "a b",
    ] {
        let error = parse(text).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with(&format!("cannot allow {text:?}")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn name_is_refused_when_one_of_its_addresses_is_private() {
    for answer in [
        &["127.0.0.1"][..],
        &["140.82.121.6", "10.0.0.1"],
        &["::ffff:169.254.169.254"],
    ] {
        let dns = ScriptedDns::new(&[answer]);
        let error = client(&policy(&[]), &dns)
            .get("http://example.test/")
            .send()
            .await
            .unwrap_err();
        let refused = refused(&error).unwrap();
        assert_eq!(refused.host, "example.test");
        assert!(
            !refused.to_string().contains(&refused.address.to_string()),
            "{refused}"
        );
    }
}

/// A host whose name first leads to an allowed address and then to a private one.
#[tokio::test]
async fn each_connection_is_opened_to_the_address_checked() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let dns = ScriptedDns::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let client = client(&policy(&["127.0.0.1"]), &dns);
    let url = format!("http://rebound.test:{port}/");
    let (first, _) = tokio::join!(client.get(&url).send(), async {
        // Closes the connection without a response. The next request needs a new one.
        drop(listener.accept().await.unwrap());
    });
    assert!(refused(&first.unwrap_err()).is_none());
    assert_eq!(dns.look_ups.load(Ordering::SeqCst), 1);
    let error = client.get(&url).send().await.unwrap_err();
    assert_eq!(
        refused(&error).unwrap().address,
        "127.0.0.2".parse::<IpAddr>().unwrap()
    );
}

#[tokio::test]
async fn system_resolver_finds_the_loopback_address() {
    let resolver = AddressResolver::new(policy(&[]), SystemResolver);
    let error = resolver
        .resolve("localhost".parse().unwrap())
        .await
        .err()
        .unwrap();
    assert_eq!(
        error.downcast_ref::<RefusedAddress>().unwrap().kind,
        AddressKind::Loopback
    );
}
