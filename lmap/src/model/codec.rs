//! Encodes and decodes a model.

use super::{Model, ModelColumn, ModelError, ModelRule};
use crate::constants::ConstantRule;
use crate::fit::MIN_LONG_LIMIT;
use crate::long_rows::MAX_ROWS;
use crate::quantile::QUANTILES;
use crate::scorer::MIN_VARIANCE;
use crate::settings::{MAX_SKETCH_ROWS, ScoreForm, SketchForm};
use crate::standard::Role;
use crate::verdict::MAX_COLUMNS;

const MAGIC: &[u8; 8] = b"uvLMAP\r\n"; // the line end shows a file that was changed as if it were text
/// Each version gave columns another limit: 2 that of their group, 3 that of their group over longer rows.
const VERSION: u32 = 3;
/// As it was before columns had limits.
const WITHOUT_LIMITS: u32 = 1;
/// Magic, version, length, checksum.
const HEAD: usize = 8 + 4 + 4 + 4;
/// Bytes of the fixed part of the payload.
const FIXED: usize = 8 + 8 * 7 + 4 * 6 + 8 * 3 + 8 * QUANTILES.len();
/// Limits of a column.
const LIMITS: usize = (VERSION - WITHOUT_LIMITS) as usize;
/// Bytes of a column without its limits.
const PER_COLUMN: usize = 8 + 2 + 8 * 3;
/// The longest time between two rows that three bytes hold, in milliseconds.
pub(super) const MAX_INTERVAL_MS: u32 = (1 << 24) - 1;
/// Bound on values after the intake.
const LARGEST: f64 = 1e151;

pub(super) fn encode(model: &Model) -> Vec<u8> {
    let mut payload = Vec::new();
    let rule = &model.rule;
    let returns = u8::from(rule.constants.returns);
    let [low, high] = rule.long_rows.unwrap_or(0).to_le_bytes();
    // Releases that know no interval write 0, and skip it.
    let [first, second, third, _] = model.interval_ms.min(MAX_INTERVAL_MS).to_le_bytes();
    payload.extend([form_code(rule.score), sketch_code(rule.sketch), returns, low, high, first, second, third]);
    let rules = [
        rule.clip,
        rule.residual_floor,
        rule.constants.weight,
        rule.constants.share,
        rule.smoothing_span,
        rule.percentile,
        rule.learning_rate,
    ];
    put(&mut payload, &rules);
    let stored = model.sketch.len() / model.columns.len();
    let sizes = [model.columns.len(), model.rank, model.sketch_rows, stored];
    let counts = [rule.constants.counted, rule.stride];
    for number in sizes.map(|size| size as u32).into_iter().chain(counts) {
        payload.extend(number.to_le_bytes());
    }
    put(&mut payload, &[model.gamma, model.averaged as f64, model.removed]);
    put(&mut payload, &model.quantiles);
    for column in &model.columns {
        payload.extend(column.fingerprint.to_le_bytes());
        payload.extend([role_code(column.role), u8::from(column.level)]);
        put(&mut payload, &[column.mean, column.inverse, column.variance, column.limit, column.long_limit]);
    }
    put(&mut payload, &model.inside_variance);
    put(&mut payload, &model.basis);
    put(&mut payload, &model.sketch);
    let mut bytes = MAGIC.to_vec();
    for number in [VERSION, payload.len() as u32, crc32fast::hash(&payload)] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.append(&mut payload);
    bytes
}

fn put(bytes: &mut Vec<u8>, values: &[f64]) {
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

pub(super) fn decode(bytes: &[u8]) -> Result<Model, ModelError> {
    let (version, payload) = payload(bytes)?;
    let limits = (version - WITHOUT_LIMITS) as usize;
    let mut reader = Reader { bytes: payload };
    let [form, sketch, returns, low, high, first, second, third] = reader.array::<8>()?;
    if returns > 1 {
        return Err(ModelError::Value { field: "constants_return", found: f64::from(returns) });
    }
    let long_rows = if limits == LIMITS { long_rows(u16::from_le_bytes([low, high]))? } else { None };
    let score = score_form(form)?;
    let sketch_form = sketch_form(sketch)?;
    let clip = reader.number("clip", 1.0, 1e12)?;
    let residual_floor = reader.number("residual_floor", 1e-6, 1e6)?;
    let weight = reader.number("constant_weight", 0.0, 1e6)?;
    let share = reader.number("constant_share", 0.0, 1e3)?;
    let smoothing_span = reader.number("smoothing_span", 1.0, 1e3)?;
    let percentile = reader.number("percentile", f64::MIN_POSITIVE, 100.0)?;
    let learning_rate = reader.number("learning_rate", 0.0, 1.0)?;
    let m = reader.size("columns", 1, MAX_COLUMNS)?;
    let rank = reader.size("rank", 1, m)?;
    // What a fit makes of the largest setting, or of the rank: a few bytes of a file must not reserve gigabytes.
    let sketch_rows = reader.size("sketch_rows", rank + 1, MAX_SKETCH_ROWS.max(2 * rank))?;
    let capacity = if sketch_form == SketchForm::Buffered { 2 * sketch_rows } else { sketch_rows };
    let stored = reader.size("stored rows", 0, capacity)?;
    let counted = reader.size("constants_counted", 0, u32::MAX as usize)? as u32;
    let stride = reader.size("stride", 1, u32::MAX as usize)? as u32;
    let per_column = PER_COLUMN + 8 * limits;
    expect_length(bytes.len(), m * per_column, (rank + stored).saturating_mul(m).saturating_add(rank))?;
    let gamma = reader.number("gamma", f64::MIN_POSITIVE, f64::MAX)?;
    let averaged = reader.number("averaged rows", 1.0, 1e15)? as usize;
    let removed = reader.number("removed", 0.0, f64::MAX)?;
    let mut quantiles = [0.0; QUANTILES.len()];
    for quantile in &mut quantiles {
        *quantile = reader.number("training quantile", 0.0, f64::MAX)?;
    }
    // A clipped value, and what is left of it outside of the basis, which has at most m directions.
    let bound = clip * 1e3 * (m as f64 + 1.0);
    let columns = (0..m).map(|_| column(&mut reader, bound, limits)).collect::<Result<Vec<_>, _>>()?;
    if let (None, Some(limited)) = (long_rows, columns.iter().find(|column| column.long_limit > 0.0)) {
        return Err(ModelError::Value { field: "limit of longer rows", found: limited.long_limit });
    }
    let inside_variance = reader.numbers("T", rank, MIN_VARIANCE, bound * bound)?;
    let basis = reader.numbers("basis", rank * m, -1.001, 1.001)?;
    let most = bound * 1e6; // rows add up in a sketch
    let sketch = reader.numbers("sketch", stored * m, -most, most)?;
    let constants = ConstantRule { weight, share, counted, returns: returns == 1 };
    let rule = ModelRule {
        score,
        sketch: sketch_form,
        clip,
        residual_floor,
        constants,
        smoothing_span,
        percentile,
        stride,
        learning_rate,
        long_rows,
    };
    Ok(Model {
        rule,
        interval_ms: u32::from_le_bytes([first, second, third, 0]),
        columns,
        gamma,
        averaged,
        quantiles,
        rank,
        sketch_rows,
        removed,
        inside_variance,
        basis,
        sketch,
    })
}

/// Version and payload, if magic, version, length and checksum are valid.
fn payload(bytes: &[u8]) -> Result<(u32, &[u8]), ModelError> {
    let mut head = Reader { bytes };
    if head.array::<8>().map_err(|_| ModelError::Magic)? != *MAGIC {
        return Err(ModelError::Magic);
    }
    let version = head.word()?;
    if !(WITHOUT_LIMITS..=VERSION).contains(&version) {
        return Err(ModelError::Version { found: version, expected: VERSION });
    }
    let (length, expected) = (head.word()? as usize, head.word()?);
    if head.bytes.len() != length {
        return Err(ModelError::Length { found: bytes.len(), expected: HEAD.saturating_add(length) });
    }
    let found = crc32fast::hash(head.bytes);
    if found != expected {
        return Err(ModelError::Checksum { found, expected });
    }
    Ok((version, head.bytes))
}

/// Checks the sizes before anything of that size is allocated: `columns` in bytes, and `numbers` after them.
fn expect_length(found: usize, columns: usize, numbers: usize) -> Result<(), ModelError> {
    let sized = numbers.saturating_mul(8).saturating_add(columns);
    let expected = sized.saturating_add(HEAD + FIXED);
    if found != expected {
        return Err(ModelError::Length { found, expected });
    }
    Ok(())
}

/// How many rows make a longer one; 0 is none.
fn long_rows(found: u16) -> Result<Option<u16>, ModelError> {
    let is_possible = found == 0 || (2..=MAX_ROWS).contains(&usize::from(found));
    if !is_possible {
        return Err(ModelError::Value { field: "long_rows", found: f64::from(found) });
    }
    Ok((found > 0).then_some(found))
}

/// A column with so many of its limits.
fn column(reader: &mut Reader<'_>, bound: f64, limits: usize) -> Result<ModelColumn, ModelError> {
    let fingerprint = u64::from_le_bytes(reader.array()?);
    let [role, level] = reader.array::<2>()?;
    let role = role_of(role)?;
    let mean = reader.number("mean", -LARGEST, LARGEST)?;
    let inverse = reader.number("1 / deviation", 0.0, 1e10)?;
    let variance = reader.number("V", 0.0, bound * bound)?;
    let limit = if limits > 0 { reader.limit("limit of a group", 1.0)? } else { 0.0 };
    let long_limit = if limits == LIMITS { reader.limit("limit of longer rows", MIN_LONG_LIMIT)? } else { 0.0 };
    let watched = role == Role::Watched;
    if level > 1 || watched != (inverse > 0.0) {
        return Err(ModelError::Value { field: "1 / deviation", found: inverse });
    }
    Ok(ModelColumn { fingerprint, role, level: level == 1, mean, inverse, variance, limit, long_limit })
}

/// Reads the remaining bytes.
#[derive(Clone)]
struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], ModelError> {
        let too_short = ModelError::Length { found: self.bytes.len(), expected: N };
        let (first, rest) = self.bytes.split_first_chunk::<N>().ok_or(too_short)?;
        self.bytes = rest;
        Ok(*first)
    }

    fn word(&mut self) -> Result<u32, ModelError> {
        self.array().map(u32::from_le_bytes)
    }

    fn size(&mut self, field: &'static str, least: usize, most: usize) -> Result<usize, ModelError> {
        let found = self.word()? as usize;
        if !(least <= found && found <= most) {
            return Err(ModelError::Value { field, found: found as f64 });
        }
        Ok(found)
    }

    fn number(&mut self, field: &'static str, least: f64, most: f64) -> Result<f64, ModelError> {
        let found = f64::from_le_bytes(self.array()?);
        if !(least <= found && found <= most) {
            return Err(ModelError::Value { field, found });
        }
        Ok(found)
    }

    /// A limit of at least `least`; 0 is none.
    fn limit(&mut self, field: &'static str, least: f64) -> Result<f64, ModelError> {
        let found = self.number(field, 0.0, f64::MAX)?;
        if found > 0.0 && found < least {
            return Err(ModelError::Value { field, found });
        }
        Ok(found)
    }

    fn numbers(&mut self, field: &'static str, count: usize, least: f64, most: f64) -> Result<Vec<f64>, ModelError> {
        (0..count).map(|_| self.number(field, least, most)).collect()
    }
}

fn form_code(form: ScoreForm) -> u8 {
    match form {
        ScoreForm::Scaled => 0,
        ScoreForm::PaperAbsolute => 1,
        ScoreForm::PaperRelative => 2,
    }
}

fn score_form(code: u8) -> Result<ScoreForm, ModelError> {
    let forms = [ScoreForm::Scaled, ScoreForm::PaperAbsolute, ScoreForm::PaperRelative];
    forms.get(usize::from(code)).copied().ok_or(ModelError::Value { field: "score form", found: f64::from(code) })
}

fn sketch_code(form: SketchForm) -> u8 {
    match form {
        SketchForm::Buffered => 0,
        SketchForm::RowWise => 1,
    }
}

fn sketch_form(code: u8) -> Result<SketchForm, ModelError> {
    let forms = [SketchForm::Buffered, SketchForm::RowWise];
    forms.get(usize::from(code)).copied().ok_or(ModelError::Value { field: "sketch form", found: f64::from(code) })
}

fn role_code(role: Role) -> u8 {
    match role {
        Role::Watched => 0,
        Role::Constant => 1,
        Role::Unwatched => 2,
    }
}

fn role_of(code: u8) -> Result<Role, ModelError> {
    let roles = [Role::Watched, Role::Constant, Role::Unwatched];
    roles.get(usize::from(code)).copied().ok_or(ModelError::Value { field: "role", found: f64::from(code) })
}
