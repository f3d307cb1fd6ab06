package server

import (
	"encoding/json"
	"errors"
	"net/http"

	"atys.dev/atys/internal/binfile/debugfile"
)

// DebugPath is where debug files are uploaded (POST, the file as the body) and listed
// (GET).
const DebugPath = "/debug/files"

// keepDebug keeps an executable or its debug file, and names code with it.
func (n *namers) keepDebug(w http.ResponseWriter, r *http.Request) {
	if n.options.Debug.Dir == "" {
		http.Error(w, "this server keeps no debug files", http.StatusNotImplemented)
		return
	}
	one := n.namer(n.tenant(r.Context()))
	kept, err := one.library.Keep(r.Body)
	switch {
	case errors.Is(err, debugfile.ErrLibraryFull):
		http.Error(w, err.Error(), http.StatusInsufficientStorage)
		return
	case errors.Is(err, debugfile.ErrNotELF):
		http.Error(w, debugfile.ErrNotELF.Error(), http.StatusBadRequest)
		return
	case errors.Is(err, debugfile.ErrNoBuildID):
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case err != nil:
		n.options.Log.Error("keep a debug file", "error", err)
		http.Error(w, "the file was not kept: the server's log says why", http.StatusInternalServerError)
		return
	}
	one.forget()
	n.look()
	answerJSON(w, kept)
}

// listDebug lists what was uploaded.
func (n *namers) listDebug(w http.ResponseWriter, r *http.Request) {
	all := []debugfile.Kept{}
	if n.options.Debug.Dir != "" {
		found, err := n.namer(n.tenant(r.Context())).library.List()
		if err != nil {
			n.options.Log.Error("list debug files", "error", err)
			http.Error(w, "the debug files could not be listed: the server's log says why", http.StatusInternalServerError)
			return
		}
		all = append(all, found...)
	}
	answerJSON(w, all)
}

func answerJSON(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(what) // the client is gone if this fails
}
