//! The lines of the page that begins with nothing, as they are written, on a cluster without uview.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use support::workspace;

use super::kit::{Cluster, SHELL};
use super::steps::Steps;
use super::watched_only;

const PAGE: &str = "docs/start/kubernetes.md";
/// Directories of an installation whose values name no others.
const DEFAULTS: &str = "/run/uview /var/lib/uview";
/// The page's kubectl is as old as its API server. This one is newer, and asks it for schemas that it has not.
const KUBECTL: &str = "#!/bin/sh
PATH=${PATH#*:}
case $1 in apply|create) verb=$1; shift; exec kubectl $verb --validate=false \"$@\" ;; esac
exec kubectl \"$@\"
";

/// helm asks the core of the kit for its version, which is too old for the definitions; the server that takes them is
/// not.
const HELM: &str = "#!/bin/sh
case \"$1 $2\" in
'install uview-crds') HELM template $2 $3 --kube-version 1.25.0 | kubectl apply -f - ;;
'uninstall uview-crds') ;;
*) exec HELM \"$@\" ;;
esac
";

/// Runs the page, from the first line to the last.
///
/// # Errors
///
/// A line fails, or waits for longer than five minutes.
pub fn check(cluster: &Cluster, (helm, uview): (&Path, &Path), steps: &mut Steps) -> Result<()> {
    let page = fs::read_to_string(workspace().join(PAGE)).context(PAGE)?;
    let blocks = blocks(&page);
    ensure!(blocks.len() == 2, "{PAGE} has {} blocks of lines", blocks.len());
    let there = cluster.sh(&format!("ls -d {DEFAULTS} 2>/dev/null || true"))?;
    ensure!(there.is_empty(), "there is an installation of uview on this machine: {there}");
    let done = lines_and_undo(cluster, (helm, uview), (blocks[0], blocks[1]), steps);
    cluster.sh(&format!("rm -rf {DEFAULTS}"))?;
    done
}

fn lines_and_undo(
    cluster: &Cluster,
    (helm, uview): (&Path, &Path),
    (lines, undo): (&str, &str),
    steps: &mut Steps,
) -> Result<()> {
    let home = tempfile::tempdir()?;
    let bin = home.path().join("bin");
    fs::create_dir(&bin)?;
    let helm = HELM.replace("HELM", &helm.canonicalize()?.display().to_string());
    for (name, script) in [("kubectl", KUBECTL), ("helm", &helm)] {
        fs::write(bin.join(name), script)?;
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755))?;
    }
    symlink(uview.canonicalize()?, bin.join("uview"))?;
    // The API server was restarted, and takes definitions and their objects by itself again, as its release reads them.
    cluster.group("apiextensions.k8s.io v1 uview.dev v1alpha1")?;
    // helm leaves the namespace, and there is no registry.
    cluster.sh("kubectl delete namespace uview --ignore-not-found --timeout=150s")?;
    cluster.sh(&format!("$CTR images tag --force {SHELL} docker.io/library/busybox:1.37"))?;
    let run = |what: &str, lines: &str| {
        // From a file, whose lines need no quotes.
        let file = home.path().join(what);
        fs::write(&file, lines)?;
        let (bin, home) = (bin.display(), home.path().display());
        let printed =
            cluster.sh(&format!("HOME={home} PATH={bin}:$PATH timeout 300 bash -e {} 2>&1", file.display()))?;
        anyhow::Ok(printed)
    };
    let printed = steps.run("the quick start, as written: installed, an alarm, an Lmap", || run("lines", lines))?;
    println!("{}", printed.lines().filter(|line| line.contains("quick/payment")).collect::<Vec<_>>().join("\n"));
    // What the page has installed is what a newcomer has: no other step is without an upstream.
    watched_only::check(cluster, steps)?;
    steps.run("what undoes it, as written: nothing is left but what was learnt", || {
        run("undo", undo)?;
        let kinds = "kubectl get crd,clusterrole,clusterrolebinding -o name | grep uview || true";
        let left = cluster.sh(&format!("ls -A /run/uview 2>/dev/null; {kinds}"))?;
        ensure!(left.trim().is_empty(), "there is {left}");
        Ok(())
    })
}

/// The blocks of shell lines of a page.
fn blocks(page: &str) -> Vec<&str> {
    page.split("```sh\n").skip(1).filter_map(|part| part.split_once("```")).map(|(lines, _)| lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_lines_to_do_and_to_undo_it() {
        assert_eq!(blocks("Text\n```sh\none\n```\nmore\n```yaml\nx\n```\n```sh\ntwo\n```\n"), ["one\n", "two\n"]);
        let page = fs::read_to_string(workspace().join(PAGE)).unwrap();
        let [lines, undo] = blocks(&page)[..] else { unreachable!("{page}") };
        assert!(lines.contains("helm install uview ") && lines.contains("ALARM"), "{lines}");
        assert!(undo.contains("helm uninstall uview "), "{undo}");
    }
}
