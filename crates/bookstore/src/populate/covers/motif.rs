//! The picture of a cover: one of a few geometric ones, in the band that the title leaves free.

use std::fmt::Write;

use super::super::chance::Chance;
use super::palette::Palette;
use super::{HEIGHT, WIDTH};

/// A picture in the band from `top` to `bottom`.
pub(super) fn draw(svg: &mut String, top: i32, bottom: i32, palette: Palette, chance: &mut Chance) {
    let picture = [tiles, sun, waves, hills, stripes, rings, steps, sails][chance.below(8) as usize];
    picture(svg, (top, bottom), palette, chance).expect("a string takes everything");
}

/// The band.
type Band = (i32, i32);

/// Quarters of circles in a grid.
fn tiles(svg: &mut String, band: Band, palette: Palette, chance: &mut Chance) -> std::fmt::Result {
    let side = 62;
    let rows = ((band.1 - band.0) / side).clamp(1, 4);
    for row in 0..rows {
        for column in 0..4 {
            let (x, y) = (26 + column * side, band.0 + row * side);
            let color = chance.choose(&[palette.accent, palette.second, palette.ink]);
            let arc = match chance.below(5) {
                0 => format!("M{x} {y}h{side}a{side} {side} 0 0 1-{side} {side}z"),
                1 => format!("M{} {y}v{side}a{side} {side} 0 0 1-{side}-{side}z", x + side),
                2 => format!("M{x} {}v-{side}a{side} {side} 0 0 1 {side} {side}z", y + side),
                3 => format!("M{x} {}a{side} {side} 0 0 1 {side}-{side}v{side}z", y + side),
                _ => format!("M{x} {y}h{side}v{side}z"),
            };
            write!(svg, "<path fill=\"{color}\" d=\"{arc}\"/>")?;
        }
    }
    Ok(())
}

/// A sun above lines of water.
fn sun(svg: &mut String, band: Band, palette: Palette, chance: &mut Chance) -> std::fmt::Result {
    let middle = (band.0 + band.1) / 2;
    let radius = ((band.1 - band.0) / 3).min(86);
    let x = chance.between(90, 210);
    write!(svg, "<circle cx=\"{x}\" cy=\"{middle}\" r=\"{radius}\" fill=\"{}\"/>", palette.accent)?;
    let mut y = middle + 8;
    let mut width = 3;
    while y < band.1 {
        write!(svg, "<path d=\"M0 {y}h{WIDTH}\" stroke=\"{}\" stroke-width=\"{width}\"/>", palette.ground)?;
        let left = chance.between(0, 140);
        write!(
            svg,
            "<path d=\"M{left} {}h{}\" stroke=\"{}\" stroke-width=\"2\"/>",
            y + 4,
            chance.between(60, 160),
            palette.second
        )?;
        y += 11;
        width += 1;
    }
    Ok(())
}

/// Waves, one over the other.
fn waves(svg: &mut String, band: Band, palette: Palette, chance: &mut Chance) -> std::fmt::Result {
    let count = 5;
    let step = (band.1 - band.0) / (count + 1);
    let height = chance.between(12, 26);
    for index in 0..count {
        let y = band.0 + step * (index + 1);
        let color = [palette.accent, palette.second, palette.ink][index as usize % 3];
        let shift = chance.between(0, 50);
        write!(
            svg,
            "<path d=\"M-{shift} {y}q25-{height} 50 0t50 0 50 0 50 0 50 0 50 0 50 0\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{}\"/>",
            chance.between(4, 12)
        )?;
    }
    Ok(())
}

/// Hills behind hills, with a moon.
fn hills(svg: &mut String, band: Band, palette: Palette, chance: &mut Chance) -> std::fmt::Result {
    let height = band.1 - band.0;
    let moon = chance.between(60, 240);
    write!(
        svg,
        "<circle cx=\"{moon}\" cy=\"{}\" r=\"{}\" fill=\"{}\"/>",
        band.0 + height / 4,
        height / 9,
        palette.ink
    )?;
    for (index, color) in [palette.second, palette.accent].into_iter().enumerate() {
        let base = band.0 + height * (5 + 2 * index as i32) / 10;
        write!(svg, "<path fill=\"{color}\" d=\"M0 {}L0 {base}", band.1)?;
        let mut x = 0;
        while x < WIDTH {
            x += chance.between(35, 80);
            write!(svg, "L{x} {}", base + chance.between(-height / 5, height / 8))?;
        }
        write!(svg, "V{}z\"/>", band.1)?;
    }
    Ok(())
}

/// Slanting stripes across the band.
fn stripes(svg: &mut String, band: Band, palette: Palette, chance: &mut Chance) -> std::fmt::Result {
    let slant = chance.between(30, 110);
    let mut x = -slant;
    while x < WIDTH {
        let width = chance.between(8, 34);
        let color = chance.choose(&[palette.accent, palette.second, palette.ground, palette.ink]);
        write!(
            svg,
            "<path fill=\"{color}\" d=\"M{x} {}h{width}L{} {}h-{width}z\"/>",
            band.1,
            x + width + slant,
            band.0
        )?;
        x += width + 3;
    }
    Ok(())
}

/// Rings around a point.
fn rings(svg: &mut String, band: Band, palette: Palette, chance: &mut Chance) -> std::fmt::Result {
    let (x, y) = (chance.between(80, 220), (band.0 + band.1) / 2);
    let most = ((band.1 - band.0) / 2).min(120);
    for (index, radius) in (1..=6).rev().map(|part| most * part / 6).enumerate() {
        let color = [palette.accent, palette.ground, palette.second, palette.ground][index % 4];
        write!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"{color}\"/>")?;
    }
    Ok(())
}

/// Blocks that rise like stairs.
fn steps(svg: &mut String, band: Band, palette: Palette, chance: &mut Chance) -> std::fmt::Result {
    let height = band.1 - band.0;
    let is_falling = chance.below(2) == 0;
    for index in 0..7 {
        let part = if is_falling { 7 - index } else { index + 1 };
        let tall = height * part / 8 + chance.between(0, height / 10);
        let color = chance.choose(&[palette.accent, palette.second]);
        write!(
            svg,
            "<rect x=\"{}\" y=\"{}\" width=\"31\" height=\"{tall}\" fill=\"{color}\"/>",
            26 + index * 36,
            band.1 - tall
        )?;
    }
    Ok(())
}

/// Triangles like sails.
fn sails(svg: &mut String, band: Band, palette: Palette, chance: &mut Chance) -> std::fmt::Result {
    let bottom = band.1.min(HEIGHT);
    for _ in 0..5 {
        let (x, width) = (chance.between(20, 200), chance.between(50, 110));
        let top = chance.between(band.0, (band.0 + bottom) / 2);
        let color = chance.choose(&[palette.accent, palette.second, palette.ink]);
        write!(
            svg,
            "<path fill=\"{color}\" fill-opacity=\".88\" d=\"M{x} {bottom}L{} {top}V{bottom}z\"/>",
            x + width
        )?;
    }
    write!(svg, "<path d=\"M26 {bottom}h248\" stroke=\"{}\" stroke-width=\"2\"/>", palette.ink)
}
