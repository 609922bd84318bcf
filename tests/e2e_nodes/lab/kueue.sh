#!/bin/bash
# kueue.sh up | stop | start | down : the real Kueue with its webhooks, on the cluster of up.sh (Trainer 2.2 or 2.3; it does not work with 2.1)
# A process beside the control plane, in its network namespace. env: as in env.sh; KUEUE_CRDS and KUEUE_WEBHOOK,
# its module's folders config/components/crd and config/components/webhook.
set -euo pipefail
. "$(dirname "$0")/env.sh"
D=$L/kueue; KP=9666; KH=9667; mkdir -p "$D/certs"; cd "$D"
start() {
  # with its own certificate management off it insists on metrics certificates at a fixed path: there, in a mount namespace of its own
  mkdir -p /etc/kueue/metrics/certs
  setsid nsenter --net=/run/netns/${PREFIX}0 -- unshare -m bash -c "mount -t tmpfs tmpfs /etc/kueue/metrics/certs && cp $D/certs/* /etc/kueue/metrics/certs/ && exec kueue --config $D/config.yaml --feature-gates VisibilityOnDemand=false" >>kueue.log 2>&1 </dev/null & echo $! > kueue.pid
  for i in $(seq 200); do in0 curl -sf http://127.0.0.1:$KH/readyz >/dev/null && return; sleep 0.3; done; tail -3 kueue.log | cut -c1-300; return 1
}
stop() { p=$(cat kueue.pid 2>/dev/null) && kill $p 2>/dev/null; rm -f kueue.pid; sleep 1; }
case ${1:-} in
start) start;;
stop) stop;;
down) stop; kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration -l lab=kueue --ignore-not-found >/dev/null;;
up)
  openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 3650 -subj /CN=kueue-ca 2>/dev/null
  openssl req -newkey rsa:2048 -nodes -keyout certs/tls.key -out tls.csr -subj /CN=kueue 2>/dev/null
  printf "subjectAltName=IP:$NET.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n" > ext
  openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile ext -out certs/tls.crt 2>/dev/null
  cat > config.yaml <<C
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: kueue-system
health: {healthProbeBindAddress: "127.0.0.1:$KH"}
metrics: {bindAddress: "0"}
webhook: {port: $KP, host: $NET.0.1, certDir: $D/certs}
leaderElection: {leaderElect: false}
internalCertManagement: {enable: false}
clientConnection: {qps: 200, burst: 400}
integrations: {frameworks: ["batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"]}
C
  kubectl create ns kueue-system >/dev/null 2>&1 || true
  "$PYTHON" - "$KUEUE_CRDS" "$KUEUE_WEBHOOK" $NET.0.1 $KP ca.crt crds.yaml hooks.yaml <<'P'
import base64, glob, sys, yaml
bases, webhook, host, port, ca, crds, hooks = sys.argv[1:]
bundle = base64.b64encode(open(ca, "rb").read()).decode()
out = []
for path in sorted(glob.glob(bases + "/bases/*.yaml")):
    crd = next(d for d in yaml.safe_load_all(open(path)) if d)
    if crd["metadata"]["name"].split(".")[0] in ("localqueues", "clusterqueues", "cohorts", "workloads", "multikueueclusters"):
        crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": {"clientConfig": {"url": f"https://{host}:{port}/convert", "caBundle": bundle}, "conversionReviewVersions": ["v1"]}}
    out.append(crd)
yaml.safe_dump_all(out, open(crds, "w"), sort_keys=False)
out = []
for doc in filter(None, yaml.safe_load_all(open(webhook + "/manifests.yaml"))):
    doc["metadata"] = {"name": "kueue-" + doc["metadata"]["name"], "labels": {"lab": "kueue"}}
    doc["webhooks"] = [w for w in doc["webhooks"] if w["name"][1:].split(".")[0] in ("job", "jobset", "trainjob", "clusterqueue", "resourceflavor", "workload", "cohort")]
    for hook in doc["webhooks"]:
        hook["clientConfig"] = {"url": f"https://{host}:{port}{hook['clientConfig']['service']['path']}", "caBundle": bundle}
    out.append(doc)
yaml.safe_dump_all(out, open(hooks, "w"), sort_keys=False)
P
  kubectl apply --server-side --force-conflicts -f crds.yaml >/dev/null
  established
  [ -s kueue.pid ] && stop; start; kubectl apply --server-side --force-conflicts -f hooks.yaml >/dev/null; echo "Kueue ready";;
*) sed -n 2,3p "$0"; exit 2;;
esac
