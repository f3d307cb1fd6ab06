// Command webserver is a Go HTTP server that does what such servers do: it parses, sorts, formats, hashes, compresses and leaves garbage.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"html/template"
	"log"
	"net/http"
	"os"
	"regexp"
	"sort"
	"strings"
)

type item struct {
	ID   int      `json:"id"`
	Name string   `json:"name"`
	Tags []string `json:"tags"`
}

var page = template.Must(template.New("page").Parse(`<ul>{{range .}}<li id={{.ID}}>{{.Name}} {{range .Tags}}<i>{{.}}</i>{{end}}</li>{{end}}</ul>`))

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: webserver ADDRESS")
	}
	var items []item
	for i := range 300 {
		items = append(items, item{i, fmt.Sprintf("item %d", i*7919%300), []string{fmt.Sprint("a", i%7), strings.Repeat("b", i%11)}})
	}
	text, err := json.Marshal(items)
	if err != nil {
		log.Fatal(err)
	}
	odd := regexp.MustCompile(`item \d*[13579]$`)
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		var list []item
		if err := json.Unmarshal(text, &list); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
		counts := map[string]int{}
		for _, one := range list {
			if odd.MatchString(one.Name) {
				counts[one.Tags[0]]++
			}
		}
		var b bytes.Buffer
		if err := page.Execute(&b, list); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("X-Sum", fmt.Sprintf("%x %v", sha256.Sum256(b.Bytes()), counts))
		z := gzip.NewWriter(w)
		defer z.Close()
		b.WriteTo(z)
	})
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}
