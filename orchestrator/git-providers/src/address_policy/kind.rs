//! Classification of addresses by the registries of special-purpose addresses (RFC 6890).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Metadata services of clouds outside of the link-local range: Alibaba, Oracle and Azure; AWS over
/// IPv6.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// What an address is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressKind {
    /// A host on the internet.
    Public,
    /// The machine itself.
    Loopback,
    /// A host of a private network, or behind a carrier's NAT.
    Private,
    /// A neighbour on the same link. Most metadata services of clouds are here.
    LinkLocal,
    /// A metadata service of a cloud, which hands out credentials.
    Metadata,
    /// No particular host; Linux connects to the machine itself.
    Unspecified,
    /// A group of hosts.
    Multicast,
    /// Reserved, for documentation, or a tunnel that conceals the destination.
    Reserved,
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Loopback => "a loopback address",
            Self::Private => "in a private network",
            Self::LinkLocal => "link-local",
            Self::Metadata => "a cloud's metadata service",
            Self::Unspecified => "unspecified",
            Self::Multicast => "a multicast address",
            Self::Reserved => "reserved",
        })
    }
}

impl AddressKind {
    /// Classifies an address. An IPv6 address that contains the IPv4 address it is routed to is
    /// classified by that.
    pub fn classify(address: IpAddr) -> Self {
        match routed_address(address) {
            IpAddr::V4(address) => classify_v4(address),
            IpAddr::V6(address) => classify_v6(address),
        }
    }
}

/// Returns the IPv4 address that an IPv6 address is routed to: IPv4-mapped, IPv4-compatible, NAT64
/// (RFC 6052) and 6to4. Returns other addresses unchanged.
pub(super) fn routed_address(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    let from = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => address,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => from(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => from(high, low),
        [0x2002, high, low, ..] => from(high, low),
        _ => address,
    }
}

fn classify_v4(address: Ipv4Addr) -> AddressKind {
    if METADATA_V4.contains(&address) {
        return AddressKind::Metadata;
    }
    match address.octets() {
        [0, ..] => AddressKind::Unspecified,
        [127, ..] => AddressKind::Loopback,
        [169, 254, ..] => AddressKind::LinkLocal,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => {
            AddressKind::Private
        }
        [224..=239, ..] => AddressKind::Multicast,
        // Protocol assignments, documentation, 6to4 relays, benchmarks, and what is not assigned.
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18 | 19, ..] | [198, 51, 100, _] => {
            AddressKind::Reserved
        }
        [203, 0, 113, _] | [240..=255, ..] => AddressKind::Reserved,
        _ => AddressKind::Public,
    }
}

fn classify_v6(address: Ipv6Addr) -> AddressKind {
    if address == METADATA_V6 {
        return AddressKind::Metadata;
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressKind::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressKind::Loopback,
        [0xfe80..=0xfebf, ..] => AddressKind::LinkLocal,
        // Unique local addresses, and the site-local ones before them.
        [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] => AddressKind::Private,
        [0xff00..=0xffff, ..] => AddressKind::Multicast,
        // Teredo and other protocols, documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => AddressKind::Reserved,
        // The only range that is assigned to hosts.
        [0x2000..=0x3fff, ..] => AddressKind::Public,
        _ => AddressKind::Reserved,
    }
}
