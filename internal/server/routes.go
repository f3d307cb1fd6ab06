package server

import "net/http"

// routes is a mux that lists its patterns: a test requests each in every role.
type routes struct {
	http.ServeMux
	patterns []string
}

// Handle routes requests that match a pattern to a handler.
func (r *routes) Handle(pattern string, h http.Handler) {
	r.patterns = append(r.patterns, pattern)
	r.ServeMux.Handle(pattern, h)
}

// HandleFunc is Handle of a function.
func (r *routes) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	r.Handle(pattern, http.HandlerFunc(h))
}
