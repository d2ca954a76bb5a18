// Command exports is an example of a service that HTTP jobs call: a request starts an export, which takes a while and
// reports its progress on request. docs/http.md walks through it.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"sync"
	"time"
)

// export is one export.
type export struct {
	day   string
	begun time.Time
}

// exports has all of them, by number.
type exports struct {
	takes time.Duration
	mu    sync.Mutex
	list  []export
}

const rows = 60

func (e *exports) begin(w http.ResponseWriter, r *http.Request) {
	var order struct{ Day string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&order); err != nil || order.Day == "" {
		http.Error(w, "which day?", http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	e.list = append(e.list, export{order.Day, time.Now()})
	id := len(e.list)
	e.mu.Unlock()
	log.Printf("export %d of %s begins", id, order.Day)
	w.WriteHeader(http.StatusAccepted)
	fmt.Fprintf(w, `{"id":%d}`, id)
}

func (e *exports) look(w http.ResponseWriter, r *http.Request) {
	var id int
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := fmt.Sscan(r.PathValue("id"), &id); err != nil || id < 1 || id > len(e.list) {
		http.NotFound(w, r)
		return
	}
	one := e.list[id-1]
	done := min(rows, int(rows*time.Since(one.begun)/e.takes))
	if done < rows {
		fmt.Fprintf(w, `{"progress":"%d/%d","message":"writing"}`, done, rows)
		return
	}
	fmt.Fprintf(w, `{"status":"succeed","data":{"file":"orders-%s.csv","rows":%d}}`, one.day, rows)
}

func news(w http.ResponseWriter, r *http.Request) {
	var event any
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&event); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	log.Print("news: ", event)
}

func main() {
	addr := flag.String("addr", "127.0.0.1:9090", "listen address")
	takes := flag.Duration("takes", 10*time.Second, "how long an export takes")
	flag.Parse()
	e := &exports{takes: *takes}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /exports", e.begin)
	mux.HandleFunc("GET /exports/{id}", e.look)
	mux.HandleFunc("POST /news", news)
	log.Printf("exports are made at http://%s", *addr)
	log.Fatal(http.ListenAndServe(*addr, mux))
}
