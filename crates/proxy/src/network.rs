//! Networks of addresses.

use std::net::{IpAddr, Ipv6Addr};

/// Whose an address is: with IPv6 that of a whole network of 64 bits, in which one client has all.
pub(crate) fn home_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// A network of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// One of its addresses.
    pub address: IpAddr,
    /// How many leading bits are the same in all of its addresses.
    pub bits: u8,
}

/// The leading bits of an address, and how long addresses of its family are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Prefix {
    size: u32,
    bits: u32,
    value: u128,
}

impl Prefix {
    /// A whole address. An IPv4 address within IPv6 is one of IPv4.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self { size: 32, bits: 32, value: u128::from(address.to_bits()) << 96 },
            IpAddr::V6(address) => Self { size: 128, bits: 128, value: address.to_bits() },
        }
    }

    /// The address cut to as many bits as another prefix has; `None` where that is of the other family.
    pub(crate) fn cut_like(self, (size, bits): (u32, u32)) -> Option<Self> {
        let kept = if bits == 0 { 0 } else { self.value >> (128 - bits) << (128 - bits) };
        (size == self.size).then_some(Self { size, bits, value: kept })
    }

    /// The family and the bits, each as a byte of a text, and how long that is.
    pub(crate) fn text(self) -> ([u8; 129], usize) {
        let mut text = [0; 129];
        text[0] = u8::from(self.size == 128);
        for (at, bytes) in text[1..].chunks_exact_mut(8).enumerate() {
            let byte = (self.value >> (120 - 8 * at)) as u8;
            bytes.iter_mut().enumerate().for_each(|(at, bit)| *bit = byte >> (7 - at) & 1);
        }
        (text, 1 + self.bits as usize)
    }

    /// The lengths that [`cut_like`](Self::cut_like) takes.
    pub(crate) fn lengths(self) -> (u32, u32) {
        (self.size, self.bits)
    }
}

impl Network {
    /// Whether an address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let ours = self.prefix();
        Prefix::of(address).cut_like(ours.lengths()) == Some(ours)
    }

    /// The bits that its addresses share.
    pub(crate) fn prefix(&self) -> Prefix {
        let address = Prefix::of(self.address);
        let bits = u32::from(self.bits).min(address.size);
        address.cut_like((address.size, bits)).unwrap_or(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_holds_its_own_addresses() {
        let network = |text: &str, bits| Network { address: text.parse().unwrap(), bits };
        let holds = |network: Network, address: &str| network.contains(address.parse().unwrap());
        assert!(holds(network("10.0.0.0", 8), "10.255.1.2"));
        assert!(holds(network("10.0.0.0", 8), "::ffff:10.255.1.2"));
        assert!(!holds(network("10.0.0.0", 8), "11.0.0.1"));
        assert!(!holds(network("10.0.0.0", 8), "::10.0.0.1"));
        assert!(holds(network("0.0.0.0", 0), "1.2.3.4"));
        assert!(!holds(network("0.0.0.0", 0), "::1"));
        assert!(holds(network("2001:db8::", 32), "2001:db8:1::7"));
        assert!(!holds(network("192.0.2.7", 32), "192.0.2.8"));
    }
}
