// Package model has claim.pml, a model in Promela of what the engine and its store promise about one operation: claim, lease, takeover,
// fence and late settlement. Its test has Spin search all orders of what processes may do, and plants a fault for each promise. With
// IDEM_LONG there are five processes, and four claims are granted: 4.5 million states, all of which are searched.
//
// What a store does in the model is what core/storetest expects of stores: random walks of Spin through the model are traces that
// storetest.CheckTrace accepts, and refuses when one answer is changed. The same check reads the traces of the simulator, of the
// histories of storetest on each store, and of the services that internal/faults kills.
package model
