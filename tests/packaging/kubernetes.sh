#!/bin/sh
# Checks packaging/kubernetes against the schema of Kubernetes, the names in it against each other, and the flags in it
# against the server. The schema is in the package kubernetes-validate of PyPI.
set -eu
cd "$(dirname "$0")/../.."
. tests/packaging/common.sh
venv=target/kubernetes
server=${BEANSTALKD:-target/debug/beanstalkd}

# Two suites run this script, and both may find that the package is missing.
mkdir -p target
exec 9>target/kubernetes.lock
! command -v flock >/dev/null || flock 9
if ! "$venv/bin/kubernetes-validate" --version >/dev/null 2>&1; then
    if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet kubernetes-validate==1.34.1; }; then
        skip "kubernetes-validate cannot be installed from PyPI"
    fi
fi
for manifest in packaging/kubernetes/*.yaml; do
    "$venv/bin/kubernetes-validate" --strict --quiet --kubernetes-version 1.34 "$manifest"
done
"$venv/bin/python" - "$server" packaging/kubernetes/*.yaml <<'PYTHON'
import re, subprocess, sys, yaml

server, *paths = sys.argv[1:]
kinds = {}
for path in paths:
    with open(path, encoding="utf-8") as file:
        for manifest in yaml.safe_load_all(file):
            kinds.setdefault(manifest["kind"], {})[manifest["metadata"]["name"]] = manifest

def require(holds, what):
    if not holds:
        sys.exit(f"kubernetes: {what}")

help = subprocess.run([server, "-h"], capture_output=True, text=True)
text = help.stdout + help.stderr
for deployment in kinds["Deployment"].values():
    spec = deployment["spec"]
    pod = spec["template"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    require(spec["replicas"] == 2, "expected 2 replicas: an owner and a standby")
    unavailable = spec["strategy"]["rollingUpdate"]["maxUnavailable"]
    require(unavailable >= spec["replicas"], "maxUnavailable is below replicas: a rollout would wait for a standby")
    require(spec["selector"]["matchLabels"].items() <= labels.items(), "the Deployment does not select its pods")
    for container in pod["containers"]:
        ports = {port["name"] for port in container["ports"]}
        require(container["readinessProbe"]["httpGet"]["path"] == "/readyz?exclude=draining",
                "the readiness probe must ask /readyz, and take drain mode for ready")
        for probe in ("readinessProbe", "livenessProbe"):
            require(container[probe]["httpGet"]["port"] in ports, f"{probe}: no such port")
        for flag in (word for word in container["args"] if word.startswith("-")):
            require(re.search(rf"(?m)^ *(-\w, )?{flag}\b", text), f"the server does not know {flag}")
        for variable in container["env"]:
            reference = variable["valueFrom"]["secretKeyRef"]
            require(reference["key"] in kinds["Secret"][reference["name"]]["stringData"], f"{reference}: no such key")
        for service in kinds["Service"].values():
            require(service["spec"]["selector"].items() <= labels.items(), "the Service does not select the pods")
            for port in service["spec"]["ports"]:
                require(port["targetPort"] in ports, f"{port}: no such port")
    for volume in pod["volumes"]:
        secret = kinds["Secret"][volume["secret"]["secretName"]]
        for item in volume["secret"]["items"]:
            require(item["key"] in secret["stringData"], f"{volume['name']}: the Secret has no {item['key']}")
PYTHON
echo "kubernetes: the manifests follow the schema"
