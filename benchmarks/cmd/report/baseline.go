package main

import (
	"slices"
	"strings"
)

// baseline is something that rows are compared with.
type baseline struct {
	name string // of a row, in a path or as the beginning of its last part: "own-first"
	ours string // what stands there in rows that are compared; empty: anything
	head string // of the column
}

// baselines are what a row may be compared with, if its table has it: the row whose path is
// the same but for one part. Where the baseline stands is found by looking, so that new rows need
// nothing here.
var baselines = []baseline{
	{name: "bare", head: "bare"},
	{name: "md5", head: "MD5"},
	{name: "jsontext-md5", head: "jsontext + MD5"},
	{name: "own", ours: "ours", head: "Fiber's own"},
	{name: "scripts", ours: "store", head: "rueidis, the same"},
	{name: "commands", head: "rueidis, SET and GET"},
	{name: "floor", head: "hashes alone"},
}

// find returns the row among rows that r is to be compared with, or nil.
func (b baseline) find(r *row, rows []*row) *row {
	path := r.path()
	for i, part := range path {
		if i == 0 {
			continue // the table's name
		}
		with := b.name
		if b.ours != "" {
			rest, ok := strings.CutPrefix(part, b.ours)
			if !ok {
				continue
			}
			with += rest
		} else if part == b.name || b.isPeer(part) {
			continue
		}
		other := slices.Clone(path)
		other[i] = with
		if found := named(rows, strings.Join(other, "/")); found != nil {
			return found
		}
		// A bare framework has no store: gin/bare/none stands for gin/replay/redis.
		if i == len(path)-2 {
			other[i+1] = "none"
			if found := named(rows, strings.Join(other, "/")); found != nil {
				return found
			}
		}
	}
	return nil
}

// isPeer says whether a part of a path is itself a baseline. Those are not compared among each
// other, but for what a bare framework is to all.
func (b baseline) isPeer(part string) bool {
	if b.name == "bare" {
		return part == "none"
	}
	return slices.ContainsFunc(baselines, func(other baseline) bool { return part == other.name })
}

func named(rows []*row, name string) *row {
	i := slices.IndexFunc(rows, func(r *row) bool { return r.name == name })
	if i < 0 {
		return nil
	}
	return rows[i]
}
