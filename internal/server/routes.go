package server

import "net/http"

// routes is a mux that knows what it answers: a test asks for each as everybody.
type routes struct {
	http.ServeMux
	patterns []string
}

// Handle has a handler answer what a pattern matches.
func (r *routes) Handle(pattern string, h http.Handler) {
	r.patterns = append(r.patterns, pattern)
	r.ServeMux.Handle(pattern, h)
}

// HandleFunc is Handle of a function.
func (r *routes) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	r.Handle(pattern, http.HandlerFunc(h))
}
