//! How a connection is opened, and how a request reaches the server.

use super::*;

impl Playback<'_> {
    pub(super) fn attempt(&mut self, user: u32, attempt: u32) {
        self.users[user as usize].attempt = attempt;
        if let Some(patience) = self.setup.patience {
            self.due(nanos(patience), Due::Abort(user, attempt));
        }
        if let Some(idle) = self.idle.pop() {
            self.connections[idle as usize].user = user;
            self.users[user as usize].connection = Some(idle);
            self.ask(idle, 0);
            return;
        }
        let connection = self.connections.len() as u32;
        self.users[user as usize].connection = Some(connection);
        self.connections.push(Connection {
            stage: Stage::Connecting,
            user,
            served: 0,
            sender: Sender::new(self.setup.tcp, self.setup.segment, nanos(self.setup.first_timeout)),
            offered: 0,
            queued: 0,
            held_up: false,
            probing: false,
            probes: 0,
            written: u64::MAX,
            last: 0,
            deadline: 0,
            watched: false,
            greeted: None,
            answered: false,
        });
        let way = self.way();
        self.due(way, Due::Syn(connection, 0));
    }

    /// A client sends its request on an open connection.
    pub(super) fn ask(&mut self, connection: u32, after: u64) {
        // A lost one is a later arrival: what counts is when the server hears of it.
        let way = self.way();
        let mut at = after + way;
        for time in 0..DOUBLINGS_MAX {
            if !self.is_lost() {
                break;
            }
            at += doubled(AGAIN_MIN.max(6 * way), time);
        }
        self.due(at, Due::Request(connection, 0));
    }

    pub(super) fn opened(&mut self, connection: u32, times: u32) {
        let one = &self.connections[connection as usize];
        let is_half_open = one.stage == Stage::HalfOpen;
        if one.answered || one.stage != Stage::Connecting && !is_half_open {
            return;
        }
        let full = !is_half_open && self.half_open >= self.setup.half_open;
        self.state.refused += u64::from(full);
        let lost = full || self.is_lost();
        // A client of today sends it again whatever becomes of it, at first each second.
        if lost || self.setup.tcp == Tcp::Linux {
            let again = doubled(nanos(self.setup.first_timeout), self.setup.tcp.doublings(times));
            self.due(again, Due::Syn(connection, times + 1));
        }
        if lost {
            return;
        }
        if is_half_open {
            self.answer(connection);
            return;
        }
        self.half_open += 1;
        self.connections[connection as usize].stage = Stage::HalfOpen;
        self.greet(connection, 0);
    }

    pub(super) fn greet(&mut self, connection: u32, times: u32) {
        let one = &self.connections[connection as usize];
        if one.stage != Stage::HalfOpen || one.answered {
            return;
        }
        let (is_on_its_way, sent) = self.answer(connection);
        self.connections[connection as usize].greeted = (times == 0).then_some(self.now);
        if !sent && times > 0 && self.setup.tcp == Tcp::Linux {
            // It forgets a connection whose answer found its own queue full again.
            self.half_open -= 1;
            self.connections[connection as usize].stage = Stage::Connecting;
        } else if !is_on_its_way {
            let again = doubled(nanos(self.setup.first_timeout), times);
            self.due(again, Due::SynAck(connection, times + 1));
        }
    }

    /// Answers an opening: whether the answer will arrive, and whether it found room.
    fn answer(&mut self, connection: u32) -> (bool, bool) {
        let lost = self.is_lost();
        let sent = self.push(Packet { connection, bytes: 0, load: Load::SynAck { lost } }, 0);
        let is_on_its_way = sent && !lost;
        self.connections[connection as usize].answered |= is_on_its_way;
        (is_on_its_way, sent)
    }

    pub(super) fn requested(&mut self, connection: u32, times: u32) {
        match self.stage(connection) {
            Stage::HalfOpen if self.backlog.len() >= self.setup.backlog => {
                let again = doubled(AGAIN_MIN.max(6 * self.way()), times);
                self.due(again, Due::Request(connection, times + 1));
            }
            Stage::HalfOpen => {
                self.half_open -= 1;
                let one = &mut self.connections[connection as usize];
                one.stage = Stage::Waiting;
                if let Some(greeted) = one.greeted {
                    one.sender.measure(self.now - greeted);
                }
                self.backlog.push_back(connection);
                self.employ();
            }
            Stage::Served => self.respond(connection),
            Stage::Connecting | Stage::Waiting | Stage::Closed => {}
        }
    }
}
