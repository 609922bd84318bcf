#!/bin/bash
# trainer.sh up RELEASE | down : the real JobSet and Trainer controllers with their webhooks, on the cluster of up.sh
#   RELEASE: of Trainer. Processes beside the control plane, in its network namespace: $BIN/trainer-$RELEASE, $BIN/jobset-$JOBSET.
#   env: as in env.sh; JOBSET (its release); TRAINER_CRDS, TRAINER_WEBHOOK, JOBSET_CRDS, JOBSET_WEBHOOK: the modules'
#   folders manifests/base/crds, manifests/base/webhook, config/components/crd and config/components/webhook.
set -euo pipefail
. "$(dirname "$0")/env.sh"
D=$L/trainer
stop() { for n in trainer jobset; do p=$(cat $D/$n.pid 2>/dev/null) && kill $p 2>/dev/null; rm -f $D/$n.pid; done; return 0; }
[ "${1:-}" = down ] && { stop; kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration -l lab=trainer --ignore-not-found >/dev/null; exit 0; }
[ "${1:-}" = up ] || { sed -n 2,5p "$0"; exit 2; }
V=$2; J=$JOBSET
stop; rm -rf "$D"; mkdir -p "$D"; cd "$D"
kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration -l lab=trainer --ignore-not-found >/dev/null   # those of another release carry another CA
TWH=9443 JWH=9444 THP=9481 JHP=9482
# one CA, one serving certificate; PKCS#1 keys and the CA's own name are what the rotator of 2.0 asks for
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 3650 -subj "/O=kubeflow-trainer/CN=kubeflow-trainer-ca" \
  -addext subjectAltName=DNS:kubeflow-trainer-ca -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature 2>/dev/null
openssl req -newkey rsa:2048 -nodes -keyout tls.key -out tls.csr -subj "/CN=kubeflow-trainer-controller-manager.kubeflow-system.svc" 2>/dev/null
printf 'subjectAltName=DNS:localhost,IP:127.0.0.1,IP:%s,DNS:kubeflow-trainer-controller-manager.kubeflow-system.svc,DNS:jobset-webhook-service.jobset-system.svc\nextendedKeyUsage=serverAuth\nkeyUsage=digitalSignature,keyEncipherment\nbasicConstraints=CA:FALSE\n' $NET.0.1 > ext
openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile ext -out tls.crt 2>/dev/null
for k in ca tls; do openssl rsa -in $k.key -traditional -out $k.pkcs1 2>/dev/null; mv $k.pkcs1 $k.key; done
for m in trainer jobset; do mkdir -p tmp-$m/k8s-webhook-server/serving-certs; cp tls.crt tls.key ca.crt tmp-$m/k8s-webhook-server/serving-certs/; done
kubectl apply --server-side --force-conflicts -f "$TRAINER_CRDS/trainer.kubeflow.org_trainjobs.yaml" -f "$TRAINER_CRDS/trainer.kubeflow.org_trainingruntimes.yaml" \
  -f "$TRAINER_CRDS/trainer.kubeflow.org_clustertrainingruntimes.yaml" -f "$JOBSET_CRDS/bases/jobset.x-k8s.io_jobsets.yaml" >/dev/null
established
for ns in kubeflow-system jobset-system; do kubectl create ns $ns >/dev/null 2>&1 || true; done
"$PYTHON" - "$TRAINER_WEBHOOK" "$JOBSET_WEBHOOK" $TWH $JWH $NET.0.1 ca.crt > webhooks.yaml <<'P'
import base64, os, sys, yaml
trainer, jobset, tport, jport, host, ca = sys.argv[1:]
bundle = base64.b64encode(open(ca, "rb").read()).decode()
patch = trainer + "/patch_validating.yaml"
selective = os.path.exists(patch) and "webhook-validation" in open(patch).read()
out = []
for source, port in ((trainer + "/manifests.yaml", tport), (jobset + "/manifests.yaml", jport)):
    for doc in filter(None, yaml.safe_load_all(open(source))):
        mutating = doc["kind"].startswith("Mutating")
        doc["metadata"] = {"name": ("defaulter" if mutating else "validator") + (".trainer.kubeflow.org" if source.startswith(trainer) else ".jobset.x-k8s.io"), "labels": {"lab": "trainer"}}
        for hook in doc["webhooks"]:
            hook["clientConfig"] = {"url": f"https://{host}:{port}{hook['clientConfig']['service']['path']}", "caBundle": bundle}
            if selective and source.startswith(trainer) and "runtime" in hook["name"]:
                hook["objectSelector"] = {"matchExpressions": [{"key": "trainer.kubeflow.org/webhook-validation", "operator": "NotIn", "values": ["disabled"]}]}
            if not source.startswith(trainer) and "pod" in hook["name"]:
                hook["objectSelector"] = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}
        out.append(doc)
print(yaml.safe_dump_all(out, sort_keys=False))
P
cat > jobset.yaml <<C
apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
leaderElection: {leaderElect: false}
internalCertManagement: {enable: false}
webhook: {port: $JWH, host: $NET.0.1, certDir: $D/tmp-jobset/k8s-webhook-server/serving-certs}
metrics: {bindAddress: "0"}
health: {healthProbeBindAddress: "127.0.0.1:$JHP"}
clientConnection: {qps: 500, burst: 500}
C
cat > trainer.yaml <<C
apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
health: {healthProbeBindAddress: "127.0.0.1:$THP", readinessEndpointName: readyz, livenessEndpointName: healthz}
metrics: {bindAddress: "0", secureServing: false}
webhook: {port: $TWH, host: $NET.0.1}
leaderElection: {leaderElect: false}
certManagement: {enable: false}
clientConnection: {qps: 200, burst: 400}
C
bg() { local n=$1; shift; setsid nsenter --net=/run/netns/${PREFIX}0 -- "$@" >>$n.log 2>&1 </dev/null & echo $! > $n.pid; }
TMPDIR=$D/tmp-jobset bg jobset jobset-$J --config jobset.yaml --metrics-bind-address 0 --health-probe-bind-address 127.0.0.1:$JHP --leader-elect=false
if [ $V = 2.0.1 ]; then   # no config file; its rotation cannot be switched off: a valid Secret and the files at its fixed path satisfy it, in a mount namespace of its own
  kubectl -n kubeflow-system delete secret kubeflow-trainer-webhook-cert --ignore-not-found >/dev/null
  kubectl -n kubeflow-system create secret generic kubeflow-trainer-webhook-cert --from-file=ca.crt --from-file=ca.key --from-file=tls.crt --from-file=tls.key >/dev/null
  kubectl apply -f webhooks.yaml >/dev/null
  bg trainer unshare -m bash -c "mkdir -p /tmp/k8s-webhook-server && mount -t tmpfs tmpfs /tmp/k8s-webhook-server && cp -r $D/tmp-trainer/k8s-webhook-server/. /tmp/k8s-webhook-server/ && exec trainer-$V --webhook-server-port $TWH --health-probe-bind-address 127.0.0.1:$THP --metrics-bind-address 0"
else
  TMPDIR=$D/tmp-trainer bg trainer trainer-$V --config trainer.yaml
fi
for p in $JHP $THP; do for i in $(seq 200); do in0 curl -sf http://127.0.0.1:$p/readyz >/dev/null && break; sleep 0.3; done; in0 curl -sf http://127.0.0.1:$p/readyz >/dev/null || { tail -3 jobset.log trainer.log; exit 1; }; done
kubectl apply -f webhooks.yaml >/dev/null
echo "Trainer $V and JobSet $J ready"
