//! Colors of covers: each subject has its own.

use super::super::chance::Chance;
use crate::names::SUBJECTS;

/// Four colors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    /// The cover's ground.
    pub(super) ground: &'static str,
    /// What is written, and readable on the ground.
    pub(super) ink: &'static str,
    /// The picture's first color.
    pub(super) accent: &'static str,
    /// Its second one.
    pub(super) second: &'static str,
}

/// A dark color, a light one, and two between, for each subject in its order.
const COLORS: [[&str; 4]; 24] = [
    ["#2b2d42", "#f4f1e8", "#ef6351", "#f7b267"],
    ["#3d2c2e", "#f7ede2", "#c08457", "#84a59d"],
    ["#14213d", "#f5f3ee", "#e09f3e", "#5c7c99"],
    ["#264653", "#fff6e0", "#f4a261", "#2a9d8f"],
    ["#101d2c", "#e8f1f2", "#38a3a5", "#80ed99"],
    ["#5f0f40", "#fff3e2", "#fb8b24", "#e36414"],
    ["#1b4332", "#f1faee", "#74c69d", "#d8f3dc"],
    ["#432818", "#ffe6a7", "#bb9457", "#99582a"],
    ["#4a4e69", "#f2e9e4", "#c9ada7", "#9a8c98"],
    ["#6a040f", "#fff4d6", "#faa307", "#e85d04"],
    ["#22223b", "#f2efe9", "#b56576", "#eaac8b"],
    ["#0b0c10", "#eae6df", "#8d0801", "#708d81"],
    ["#2f3e46", "#f3f5ef", "#84a98c", "#cad2c5"],
    ["#3a5a40", "#fefae0", "#dda15e", "#a3b18a"],
    ["#1d3557", "#f1faee", "#e63946", "#a8dadc"],
    ["#343a40", "#f8f9fa", "#868e96", "#ffd43b"],
    ["#3c1642", "#f6f0ff", "#b8a1d9", "#e0b1cb"],
    ["#590d22", "#fff0f3", "#ff758f", "#ffb3c1"],
    ["#005f73", "#fdf6e3", "#94d2bd", "#ee9b00"],
    ["#132a13", "#ecf39e", "#90a955", "#4f772d"],
    ["#03071e", "#e0fbfc", "#5e60ce", "#48bfe3"],
    ["#023e8a", "#f1faff", "#00b4d8", "#ffb703"],
    ["#3f37c9", "#fff8f0", "#f72585", "#4cc9f0"],
    ["#274c77", "#fef9ef", "#e7bc91", "#6096ba"],
];

impl Palette {
    /// The subject's, dark on light or light on dark.
    pub(super) fn of(subject: &str, chance: &mut Chance) -> Self {
        let index = SUBJECTS.iter().position(|known| *known == subject).unwrap_or_default();
        let [dark, light, accent, second] = COLORS[index];
        let (accent, second) = if chance.below(2) == 0 { (accent, second) } else { (second, accent) };
        match chance.below(5) {
            0 | 1 => Self { ground: light, ink: dark, accent, second },
            _ => Self { ground: dark, ink: light, accent, second },
        }
    }
}
