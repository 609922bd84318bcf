// Floor is the least that an admission webhook can do: decode the review into a map and answer a fixed patch.
// It decides nothing. The benchmark measures Checkpoint Guard against it.
package main

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/http"
	"os"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address and port")
	certificate := flag.String("tls-cert", "", "PEM file")
	key := flag.String("tls-key", "", "PEM file")
	fill := flag.String("fill", "", "file with the JSON patch that /fill answers")
	flag.Parse()
	patch := base64.StdEncoding.EncodeToString([]byte(
		`[{"op":"add","path":"/metadata/annotations","value":{"example.com/seen":"true"}}]`))
	answer := func(w http.ResponseWriter, r *http.Request, add func(map[string]any)) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 7<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var review map[string]any
		if err := json.Unmarshal(body, &review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		request, _ := review["request"].(map[string]any)
		response := map[string]any{"uid": request["uid"], "allowed": true}
		add(response)
		reply, err := json.Marshal(map[string]any{
			"apiVersion": "admission.k8s.io/v1",
			"kind":       "AdmissionReview",
			"response":   response,
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(reply)
	}
	with := func(patch string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			answer(w, r, func(response map[string]any) {
				response["patchType"] = "JSONPatch"
				response["patch"] = patch
			})
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mutate", with(patch))
	mux.HandleFunc("POST /validate", with(patch))
	if *fill != "" {
		text, err := os.ReadFile(*fill)
		if err != nil {
			log.Fatal(err)
		}
		mux.HandleFunc("POST /fill", with(base64.StdEncoding.EncodeToString(text)))
	}
	// An API server takes no patch from a validating webhook.
	mux.HandleFunc("POST /allow", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, func(map[string]any) {})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	server := &http.Server{Addr: *listen, Handler: mux, IdleTimeout: 120 * time.Second, ReadHeaderTimeout: 10 * time.Second}
	if *certificate != "" {
		log.Fatal(server.ListenAndServeTLS(*certificate, *key))
	}
	log.Fatal(server.ListenAndServe())
}
