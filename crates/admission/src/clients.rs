//! The clients that are connected: whether longs that wait hoard the connections that others need.
//!
//! **Why.** An application asks over a pool of connections, or with one for each of its workers. While a
//! request waits its connection is of no use to anybody else. Shortest first lets longs wait for as long as
//! shorts come, so that in overload ever more of the connections are held by longs, until shorts wait for
//! one *inside the application*, where no gate sees them and no order holds. If visitors lose their
//! patience meanwhile and the application doesn't say so, all that was postponed is served for nobody in
//! the end. So what waits with longs must stay a part of the connections.
//!
//! **Whose.** Connections that carry shorts and longs in turn, as those of a pool do: [`Mixing`]. Those of
//! workers that send nothing but reports take nothing from anybody, and don't count; nor does one that was
//! opened for a single request.
//!
//! **Rule.** Longs *hoard* connections when one of [`PART`] and at least [`FEW`] mixing clients wait with
//! one. What a gate does then is in `gate/hoard.rs`. A part, not a time, is what bounds the wait: by
//! Little's law longs wait for (mixing clients / [`PART`]) / (longs served per second), which needs no
//! knowledge of anybody's patience. Larger parts let longs wait for longer than people do where the pool is
//! large; smaller ones give up what shortest first is worth.
//!
//! **When it fails.** A pool of thousands before a service that serves few longs: an eighth of it is a long
//! wait all the same. A pool over which more than one of five is long: it doesn't mix, and longs hold what
//! they hold.
//!
//! **Source.** Ours. What the application suffers from is Nygard's *blocked threads* ("Release It!", 2nd
//! edition, 2018); his cure, a bulkhead, is the application's to build.

use alloc::vec::Vec;

use crate::request::ClientId;

/// Longs hoard connections if one client in this number waits with a long, of those that mix.
const PART: u32 = 8;
/// Fewer waiting longs than this don't hoard connections. They are soon served, and a small pool bounds the
/// wait by itself.
const FEW: u32 = 4;

/// The fewest short requests of a client that mixes.
const SHORTS: u8 = 2;
/// The fewest short requests of a client that mixes, for each of its longs.
const SHORTS_PER_LONG: u8 = 4;
/// The counts of a client are halved after this many requests.
const MEMORY: u8 = 32;

/// What a client has sent lately.
#[derive(Clone, Copy, Debug, Default)]
struct Mixing {
    shorts: u8,
    longs: u8,
}

impl Mixing {
    fn is(self) -> bool {
        self.shorts >= SHORTS && self.shorts / SHORTS_PER_LONG >= self.longs
    }

    fn add(&mut self, is_long: bool) {
        if self.shorts + self.longs >= MEMORY {
            (self.shorts, self.longs) = (self.shorts / 2, self.longs / 2);
        }
        *(if is_long { &mut self.longs } else { &mut self.shorts }) += 1;
    }
}

/// All clients that are connected.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// By number; `None`: nobody has it.
    known: Vec<Option<Mixing>>,
    free: Vec<ClientId>,
    /// How many mix.
    mixing: u32,
    /// How many wait with a long that mixed when it came.
    waiting: u32,
}

impl Clients {
    /// One has connected.
    pub(crate) fn connect(&mut self) -> ClientId {
        let client = self.free.pop().unwrap_or_else(|| {
            self.known.push(None);
            ClientId::new((self.known.len() - 1) as u32)
        });
        self.known[client.place()] = Some(Mixing::default());
        client
    }

    /// One has left.
    pub(crate) fn disconnect(&mut self, client: ClientId) {
        if let Some(mixing) = self.known.get_mut(client.place()).and_then(Option::take) {
            self.mixing -= u32::from(mixing.is());
            self.free.push(client);
        }
    }

    /// One sends a request, long or not. Whether it mixes, this one included.
    pub(crate) fn send(&mut self, client: ClientId, is_long: bool) -> bool {
        let Some(Some(mixing)) = self.known.get_mut(client.place()) else { return false };
        let was = mixing.is();
        mixing.add(is_long);
        self.mixing = self.mixing - u32::from(was) + u32::from(mixing.is());
        mixing.is()
    }

    /// One that mixes waits with a long from now on.
    pub(crate) fn wait(&mut self) {
        self.waiting += 1;
    }

    /// A client that mixes waits with a long no more.
    pub(crate) fn stop_waiting(&mut self) {
        self.waiting -= 1;
    }

    /// How many mix.
    pub(crate) fn mixing(&self) -> u32 {
        self.mixing
    }

    /// How many wait with a long that mixed when it came.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Whether so many of those that mix wait with a long that others lack their connections.
    pub(crate) fn hoard(&self) -> bool {
        self.waiting >= FEW && self.waiting >= self.mixing / PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` clients that have each sent `shorts` short requests.
    fn clients(count: usize, shorts: usize) -> (Clients, Vec<ClientId>) {
        let mut clients = Clients::default();
        let ids: Vec<_> = (0..count).map(|_| clients.connect()).collect();
        for &id in &ids {
            for _ in 0..shorts {
                clients.send(id, false);
            }
        }
        (clients, ids)
    }

    #[test]
    fn longs_with_which_an_eighth_of_those_that_mix_wait_hoard_connections() {
        let (mut clients, _) = clients(80, 5);
        assert_eq!(clients.mixing(), 80);
        for _ in 0..9 {
            clients.wait();
        }
        assert!(!clients.hoard());
        clients.wait();
        assert!(clients.hoard());
        clients.stop_waiting();
        assert!(!clients.hoard());
    }

    #[test]
    fn three_longs_hoard_nothing_however_few_clients_there_are() {
        let (mut clients, _) = clients(4, 5);
        (0..3).for_each(|_| clients.wait());
        assert!(!clients.hoard());
        clients.wait();
        assert!(clients.hoard());
    }

    #[test]
    fn who_sends_nothing_but_longs_or_has_only_come_does_not_mix() {
        let (mut clients, ids) = clients(2, 0);
        assert!(!clients.send(ids[0], true));
        for _ in 0..100 {
            // A job is claimed, performed, and marked as done.
            assert!(!clients.send(ids[1], false));
            assert!(!clients.send(ids[1], true));
            assert!(!clients.send(ids[1], false));
        }
        assert!(clients.mixing() == 0);
    }

    #[test]
    fn who_sends_a_long_now_and_then_mixes_and_who_turns_to_longs_does_not_any_more() {
        let (mut clients, ids) = clients(1, 20);
        for _ in 0..100 {
            assert!(clients.send(ids[0], true));
            for _ in 0..14 {
                clients.send(ids[0], false);
            }
        }
        for _ in 0..5 {
            clients.send(ids[0], true);
        }
        assert!(!clients.send(ids[0], true) && clients.mixing() == 0);
    }

    #[test]
    fn numbers_are_used_again_and_one_that_is_gone_says_nothing() {
        let (mut clients, ids) = clients(3, 5);
        clients.disconnect(ids[1]);
        assert_eq!(clients.mixing(), 2);
        assert!(!clients.send(ids[1], false) && !clients.send(ClientId::new(77), false));
        clients.disconnect(ids[1]);
        let again = clients.connect();
        assert_eq!((again, clients.mixing()), (ids[1], 2));
        assert!(!clients.send(again, false), "it is another one");
    }
}
