//! The vector instructions and the precision of both sides of a figure.

/// The widest vector instructions of this machine that the detector is compiled for. It chooses them at run time.
fn at_run_time() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if pulp::x86::V4::try_new().is_some() {
        return "AVX-512";
    }
    #[cfg(target_arch = "x86_64")]
    if pulp::x86::V3::try_new().is_some() {
        return "AVX2";
    }
    in_build()
}

/// The vector instructions that this build may use everywhere.
fn in_build() -> &'static str {
    if cfg!(target_feature = "avx512f") {
        "AVX-512"
    } else if cfg!(target_feature = "avx2") {
        "AVX2"
    } else if cfg!(target_feature = "sse2") {
        "SSE2"
    } else if cfg!(target_feature = "neon") {
        "Neon"
    } else {
        "no vectors"
    }
}

/// What the detector computes with.
pub fn ours() -> String {
    format!("ours scores in f32 and decomposes in f64, with {} chosen at run time", at_run_time())
}

/// The same beside a peer of this build that computes in `precision`.
pub fn against_build(precision: &str) -> String {
    format!(
        "{}; the peer computes in {precision}, with {}, all that this build for {} allows",
        ours(),
        in_build(),
        std::env::consts::ARCH
    )
}
