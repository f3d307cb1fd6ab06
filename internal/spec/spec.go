// Package spec is what users write down: which targets, which series, what is to be done with them.
//
//	a file of objects (parse.go) -> Profile (profile.go, frequency.go): defaults, and what is wrong with it, by field
//	{service="checkout"} (selector.go) -> Selector
package spec
