// Command exports is a service as HTTP jobs call it: an export is begun by a request, takes a while, and says how far it
// is when it is asked. docs/http.md walks through it.
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

// export is what the service is doing for somebody.
type export struct {
	day   string
	begun time.Time
}

// exports are all of them, by number.
type exports struct {
	takes time.Duration
	mu    sync.Mutex
	list  []export
}

const rows = 60

func (e *exports) begin(w http.ResponseWriter, r *http.Request) {
	var wish struct{ Day string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&wish); err != nil || wish.Day == "" {
		http.Error(w, "which day?", http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	e.list = append(e.list, export{wish.Day, time.Now()})
	id := len(e.list)
	e.mu.Unlock()
	log.Printf("export %d of %s begins", id, wish.Day)
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
	var told any
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&told); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	log.Print("news: ", told)
}

func main() {
	addr := flag.String("addr", "127.0.0.1:9090", "where to listen")
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
