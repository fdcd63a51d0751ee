// The stand-in for NCCL (nccl.h). A clique is the ranks of one ncclUniqueId; a communicator is one rank of it.
//
// Each rank numbers its collectives; the n-th of every rank are one operation, and the k-th Send from r to s belongs to the k-th Recv at s
// from r. What they say is compared as soon as it is known; a difference breaks the clique, and every rank is told all sides. The calls of
// a group are one piece of work on a stream; it has arrived when the stream comes to it, and an operation happens when all its ranks have
// arrived. Sums follow a ring, rounded to the type at every hop (facts: cuda.md, section 9): element i of n, in chunk c = i · ranks / n, is
//   (((x_(c+1) + x_(c+2)) + …) + x_c)        with indices along the ring, which is the order of the ranks or a shuffled one.
// A sum that goes to one rank ends there.
#include "nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <sstream>
#include <thread>
#include <vector>

#include "internal.h"

namespace simt {
namespace {

using Clock = std::chrono::steady_clock;

NcclOptions the_options;
std::mutex state_lock;  // of everything below; never held while the runtime is called
std::condition_variable joined;
thread_local std::string last_error;

template <class... Parts>
std::string message(const Parts&... parts) {
    std::ostringstream s;
    (s << ... << parts);
    return s.str();
}

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

uint64_t random_bits(uint64_t seed, uint64_t a, uint64_t b) {
    uint64_t z = seed * 0x9e3779b97f4a7c15u + a * 0xbf58476d1ce4e5b9u + b * 0x94d049bb133111ebu;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    return z ^ z >> 31;
}

// ---- Operations ----------------------------------------------------------------------------------------------------------------

enum class Kind : uint8_t { all_reduce, broadcast, reduce, all_gather, reduce_scatter, send, receive };
constexpr const char* kind_names[] = {"AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter", "Send", "Recv"};
constexpr const char* reduction_names[] = {"sum", "product", "maximum", "minimum", "average"};

struct TypeInfo {
    const char* name;
    size_t bytes;
};
constexpr TypeInfo types[ncclNumTypes] = {{"int8", 1},    {"uint8", 1},   {"int32", 4},    {"uint32", 4},   {"int64", 8},      {"uint64", 8},
                                          {"float16", 2}, {"float32", 4}, {"float64", 8}, {"bfloat16", 2}, {"float8e4m3", 1}, {"float8e5m2", 1}};

struct Clique;

struct Operation {
    Kind kind;
    const void* send;
    void* receive;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t reduction;  // of those that reduce
    int root;               // or the peer
    int rank = 0;
    int64_t number = 0;     // of the rank's collectives, or of the pair's sends
    std::thread::id thread = {};
    uint64_t batch = 0;     // the group it was called in
    std::shared_ptr<Operation> partner = nullptr;  // of Send and Recv
    bool arrived = false, done = false;

    bool point_to_point() const { return kind >= Kind::send; }
    bool reduces() const { return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter; }
    bool rooted() const { return kind == Kind::broadcast || kind == Kind::reduce; }
    size_t bytes() const { return count * types[type].bytes; }
    std::string text() const {
        std::string s = message(kind_names[int(kind)], "(count ", count, ", ", types[type].name);
        if (reduces()) s += message(", ", reduction_names[reduction]);
        if (rooted()) s += message(", root ", root);
        if (point_to_point()) s += message(kind == Kind::send ? ", to rank " : ", from rank ", root);
        return s + ")";
    }
    bool agrees_with(const Operation& o) const {
        if (point_to_point()) return count == o.count && type == o.type;
        return kind == o.kind && count == o.count && type == o.type && (!reduces() || reduction == o.reduction) && (!rooted() || root == o.root);
    }
};
using OperationPtr = std::shared_ptr<Operation>;

struct Rank {
    bool joined = false, gone = false;
    int device = -1;
    int64_t collectives = 0;      // called so far
    int64_t under_way = 0;        // operations that are not done
    std::deque<OperationPtr> sends, receives;  // without a partner yet
};

/// One rank's view of the order of collectives of all cliques on its device: facts, "ops on two comms in different orders".
struct Issued {
    const Clique* clique;
    int64_t number;
};

struct Clique {
    uint64_t id;
    int count = 0;
    std::vector<Rank> ranks;
    std::map<int64_t, std::vector<OperationPtr>> collectives;  // those not done, by number and rank
    std::string broken;  // why nothing goes on

    int missing() const { return count - int(std::ranges::count_if(ranks, [](const Rank& r) { return r.joined; })); }
};

std::map<uint64_t, std::shared_ptr<Clique>> cliques;
uint64_t next_id = 1;
std::atomic<uint64_t> next_batch = 1;
std::map<int, std::deque<Issued>> issued_on_device;

}  // namespace
}  // namespace simt

/// Communicators are never freed, so that their use after the end is seen.
struct ncclComm {
    std::shared_ptr<simt::Clique> clique;
    int rank, device;
    bool blocking = true;
    const char* ended = nullptr;      // the function that ended it
    int polls_left = 0;               // until a call on a non-blocking communicator is seen to be complete
    std::atomic<bool> in_use = false;
};

namespace simt {
namespace {

std::vector<std::unique_ptr<ncclComm>> all_communicators;

struct Failure {
    ncclResult_t result;
    std::string why;
};
template <class... Parts>
void fail_if(bool condition, ncclResult_t result, const Parts&... why) {
    if (condition) throw Failure{result, message(why...)};
}

/// Throws what breaks the clique for all its ranks.
void break_clique(Clique& c, const std::string& why) {
    if (c.broken.empty()) c.broken = why;
    joined.notify_all();
    throw Failure{ncclInvalidUsage, c.broken};
}

// ---- Arithmetic ----------------------------------------------------------------------------------------------------------------

struct Bfloat16 {
    uint16_t bits;
};
float value_of(Bfloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
template <class T>
T value_of(T x) { return x; }

template <class T, class Value>
T rounded_to(Value x) {
    if constexpr (std::is_same_v<T, Bfloat16>) {
        const uint32_t u = std::bit_cast<uint32_t>(x);
        return {x != x ? uint16_t(0x7fff) : uint16_t((u + 0x7fffu + (u >> 16 & 1)) >> 16)};
    } else
        return T(x);
}

template <class T>
T combine(T a, T b, ncclRedOp_t reduction) {
    const auto x = value_of(a), y = value_of(b);
    switch (reduction) {
        case ncclProd: return rounded_to<T>(x * y);
        case ncclMax: return x < y ? b : a;
        case ncclMin: return y < x ? b : a;
        default: return rounded_to<T>(x + y);
    }
}

/// The ranks in the order of the ring.
std::vector<int> ring(const Clique& c) {
    std::vector<int> order(static_cast<size_t>(c.count));
    std::iota(order.begin(), order.end(), 0);
    if (the_options.order_seed != 0)
        for (size_t i = order.size() - 1; i > 0; i--) std::swap(order[i], order[random_bits(the_options.order_seed, order.size(), i) % (i + 1)]);
    return order;
}

/// The reduction of elements [first, last) of all ranks' inputs, ending at place `end` of the ring.
template <class T>
void reduce_chunk(T* result, const std::vector<const T*>& inputs, const std::vector<int>& order, size_t end, size_t first, size_t last,
                  ncclRedOp_t reduction) {
    const size_t n = order.size();
    const T share = rounded_to<T>(decltype(value_of(T{}))(reduction == ncclAvg ? 1.0 / double(n) : 1.0));
    const auto input = [&](size_t place, size_t i) {
        const T x = inputs[size_t(order[place % n])][i];
        if constexpr (std::is_integral_v<T>) return x;
        else return reduction == ncclAvg ? rounded_to<T>(value_of(x) * value_of(share)) : x;
    };
    for (size_t i = first; i < last; i++) {
        T sum = input(end + 1, i);
        for (size_t hop = 2; hop <= n; hop++) sum = combine(sum, input(end + hop, i), reduction);
        if constexpr (std::is_integral_v<T>)
            if (reduction == ncclAvg) sum = T(sum / T(n));
        result[i] = sum;
    }
}

/// Elements of the whole result. Where it is scattered or goes to a root, the sums end at the rank that receives them.
template <class T>
std::vector<T> reduced(const Clique& c, const std::vector<OperationPtr>& ops) {
    const Operation& o = *ops[0];
    const size_t n = size_t(c.count), total = o.kind == Kind::reduce_scatter ? n * o.count : o.count;
    const std::vector<int> order = ring(c);
    std::vector<const T*> inputs;
    for (const OperationPtr& op : ops) inputs.push_back(static_cast<const T*>(op->send));
    const auto place_of = [&](int rank) { return size_t(std::ranges::find(order, rank) - order.begin()); };
    std::vector<T> result(total);
    for (size_t chunk = 0; chunk < n; chunk++) {
        const size_t end = o.kind == Kind::reduce ? place_of(o.root) : o.kind == Kind::reduce_scatter ? place_of(int(chunk)) : chunk;
        reduce_chunk(result.data(), inputs, order, end, chunk * total / n, (chunk + 1) * total / n, o.reduction);
    }
    return result;
}

template <class T>
void store_reduced(const Clique& c, const std::vector<OperationPtr>& ops) {
    const std::vector<T> result = reduced<T>(c, ops);
    for (const OperationPtr& op : ops) {
        if (op->kind == Kind::reduce && op->rank != op->root) continue;
        const size_t first = op->kind == Kind::reduce_scatter ? size_t(op->rank) * op->count : 0;
        if (op->count > 0) std::memcpy(op->receive, result.data() + first, op->bytes());
    }
}

void reduce_by_type(const Clique& c, const std::vector<OperationPtr>& ops) {
    switch (ops[0]->type) {
        case ncclInt8: return store_reduced<int8_t>(c, ops);
        case ncclUint8: return store_reduced<uint8_t>(c, ops);
        case ncclInt32: return store_reduced<int32_t>(c, ops);
        case ncclUint32: return store_reduced<uint32_t>(c, ops);
        case ncclInt64: return store_reduced<int64_t>(c, ops);
        case ncclUint64: return store_reduced<uint64_t>(c, ops);
        case ncclFloat32: return store_reduced<float>(c, ops);
        case ncclFloat64: return store_reduced<double>(c, ops);
        default: return store_reduced<Bfloat16>(c, ops);
    }
}

// ---- Moving data, when all have arrived ----------------------------------------------------------------------------------------

/// What an operation of one rank reads and writes.
struct Access {
    const void* p;
    size_t bytes;
};
Access read_by(const Operation& o, int ranks) {
    if (o.kind == Kind::receive || (o.kind == Kind::broadcast && o.rank != o.root)) return {nullptr, 0};
    return {o.send, o.bytes() * size_t(o.kind == Kind::reduce_scatter ? ranks : 1)};
}
Access written_by(const Operation& o, int ranks) {
    if (o.kind == Kind::send || (o.kind == Kind::reduce && o.rank != o.root)) return {nullptr, 0};
    return {o.receive, o.bytes() * size_t(o.kind == Kind::all_gather ? ranks : 1)};
}

void check_memory(const Operation& o, int ranks) {
    const std::string who = message("NCCL rank ", o.rank, ", ", o.text());
    const Access in = read_by(o, ranks), out = written_by(o, ranks);
    library_access(who.c_str(), in.p, in.bytes, false);
    library_access(who.c_str(), out.p, out.bytes, true);
}

void copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

void run_collective(const Clique& c, const std::vector<OperationPtr>& ops) {
    for (const OperationPtr& op : ops) check_memory(*op, c.count);
    const Operation& first = *ops[0];
    if (first.reduces()) return reduce_by_type(c, ops);
    for (const OperationPtr& to : ops) {
        if (first.kind == Kind::broadcast) copy(to->receive, ops[size_t(first.root)]->send, to->bytes());
        if (first.kind == Kind::all_gather)
            for (const OperationPtr& from : ops) copy(static_cast<char*>(to->receive) + size_t(from->rank) * from->bytes(), from->send, from->bytes());
    }
}

void finish(Clique& c, Operation& o) {
    o.done = true;
    c.ranks[size_t(o.rank)].under_way--;
}

/// Does whatever the arrival of `o` makes possible.
void progress(Clique& c, const OperationPtr& o) {
    if (o->point_to_point()) {
        if (!o->partner || !o->partner->arrived || o->done) return;
        Operation& send = o->kind == Kind::send ? *o : *o->partner;
        Operation& receive = o->kind == Kind::send ? *o->partner : *o;
        check_memory(send, c.count), check_memory(receive, c.count);
        copy(receive.receive, send.send, send.bytes());
        finish(c, send), finish(c, receive);
        send.partner = receive.partner = nullptr;
        return;
    }
    const auto entry = c.collectives.find(o->number);
    if (entry == c.collectives.end()) return;
    const std::vector<OperationPtr> ops = entry->second;
    if (!std::ranges::all_of(ops, [](const OperationPtr& op) { return op && op->arrived; })) return;
    run_collective(c, ops);
    for (const OperationPtr& op : ops) finish(c, *op);
    c.collectives.erase(o->number);
}

/// Who an operation waits for.
std::string who_is_missing(const Clique& c, const Operation& o) {
    std::string s = message("NCCL rank ", o.rank, " of ", c.count, " has waited ", the_options.timeout_seconds, " s in ", o.text());
    if (o.point_to_point()) {
        if (!o.partner) return s + message(": rank ", o.root, " has not called the ", o.kind == Kind::send ? "Recv" : "Send", " that belongs to it");
        return s + message(": rank ", o.root, " has called ", o.partner->text(), ", but its stream waits for something else");
    }
    s += message(", its collective ", o.number);
    for (int r = 0; r < c.count; r++) {
        const OperationPtr& other = c.collectives.at(o.number)[size_t(r)];
        if (other && other->arrived) continue;
        s += message(": rank ", r);
        if (other) s += " has called it, but its stream has not come to it";
        else if (c.ranks[size_t(r)].gone) s += " has ended its communicator";
        else s += message(" has called ", c.ranks[size_t(r)].collectives, " collectives");
    }
    return s;
}

/// The calls of one group on one communicator: one piece of work for its stream.
struct Task {
    std::shared_ptr<Clique> clique;
    ncclComm* comm;
    std::vector<OperationPtr> operations;
    Clock::time_point start = {};
    int delays = 0;
    bool arrived = false;

    /// True when all is done. A fault is everyone's.
    bool run() {
        const std::lock_guard lock(state_lock);
        try {
            return advance();
        } catch (const Fault& fault) {
            if (clique->broken.empty()) clique->broken = fault.what();
            throw;
        }
    }
    bool advance() {
        if (delays-- > 0) return false;
        if (comm->ended && std::strcmp(comm->ended, "ncclCommAbort") == 0) return true;
        if (!clique->broken.empty()) throw Fault(clique->broken);
        if (!arrived) {
            start = Clock::now();
            for (const OperationPtr& o : operations) o->arrived = true;
            arrived = true;
        }
        bool all_done = true;
        for (const OperationPtr& o : operations) {
            if (!o->done) progress(*clique, o);
            all_done &= o->done;
        }
        if (all_done || seconds_since(start) < the_options.timeout_seconds) return all_done;
        const auto waiting = std::ranges::find_if(operations, [](const OperationPtr& o) { return !o->done; });
        throw Fault(who_is_missing(*clique, **waiting));
    }
};

// ---- Calls ---------------------------------------------------------------------------------------------------------------------

struct Call {
    ncclComm* comm;
    cudaStream_t stream;
    Operation operation;
};
struct Joining {
    ncclComm* comm;
};
struct Group {
    int depth = 0;
    std::vector<Call> calls;
    std::vector<Joining> joining;
};
thread_local Group group;

void check_usable(ncclComm* comm) {
    fail_if(!comm, ncclInvalidArgument, "the communicator is null");
    fail_if(std::ranges::none_of(all_communicators, [&](const auto& c) { return c.get() == comm; }), ncclInvalidArgument, "no communicator");
    fail_if(comm->ended, ncclInvalidUsage, "rank ", comm->rank, " uses its communicator after ", comm->ended);
    fail_if(!comm->clique->broken.empty(), ncclInvalidUsage, comm->clique->broken);
}
void check_complete(const ncclComm* comm) {
    fail_if(comm->clique->missing() > 0 || comm->polls_left > 0, ncclInvalidUsage, "rank ", comm->rank,
            " goes on while an earlier call is ncclInProgress: ask ncclCommGetAsyncError until it is not");
}

bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
    const char *x = static_cast<const char*>(a), *y = static_cast<const char*>(b);
    return x < y + b_bytes && y < x + a_bytes;
}
void check_in_place(const Operation& o, int ranks) {
    const Access in = read_by(o, ranks), out = written_by(o, ranks);
    if (in.bytes == 0 || out.bytes == 0 || !overlap(in.p, in.bytes, out.p, out.bytes)) return;
    const char *send = static_cast<const char*>(in.p), *receive = static_cast<const char*>(out.p);
    if (o.kind == Kind::all_gather) receive += size_t(o.rank) * o.bytes();
    if (o.kind == Kind::reduce_scatter) send += size_t(o.rank) * o.bytes();
    fail_if(send != receive, ncclInvalidArgument, o.text(), " of rank ", o.rank, ": the buffers overlap, and not as in place");
}

void check_device(const char* what, const Access& access, const ncclComm* comm, const Operation& o) {
    if (access.bytes == 0) return;
    fail_if(!access.p, ncclInvalidArgument, o.text(), ": the ", what, " buffer is null");
    cudaPointerAttributes at{};
    cudaPointerGetAttributes(&at, access.p);
    const bool of_device = at.type == cudaMemoryTypeDevice || at.type == cudaMemoryTypeManaged;
    fail_if(!of_device || at.device != comm->device, ncclInvalidArgument, o.text(), " of rank ", comm->rank, ": the ", what, " buffer ", access.p,
            of_device ? message(" is on device ", at.device, ", the communicator on device ", comm->device) : std::string(" is not device memory"));
}

void check_arguments(const ncclComm* comm, cudaStream_t stream, const Operation& o) {
    const int n = comm->clique->count;
    fail_if(o.type < 0 || o.type >= ncclNumTypes, ncclInvalidArgument, "data type ", int(o.type));
    fail_if(o.reduces() && (o.reduction < 0 || o.reduction >= ncclNumOps), ncclInvalidArgument, "reduction ", int(o.reduction));
    fail_if(o.reduces() && (o.type == ncclFloat16 || o.type >= ncclFloat8e4m3), ncclInvalidArgument, "no reduction of ", types[o.type].name, " here");
    fail_if((o.rooted() || o.point_to_point()) && (o.root < 0 || o.root >= n), ncclInvalidArgument, kind_names[int(o.kind)], " with rank ", o.root, " of ", n);
    fail_if(stream_device(stream) != comm->device, ncclInvalidUsage, o.text(), " of rank ", comm->rank, " on a stream of device ",
            stream_device(stream), ", the communicator is on device ", comm->device);
    check_device("send", read_by(o, n), comm, o);
    check_device("receive", written_by(o, n), comm, o);
    check_in_place(o, n);
}

std::string all_sides(const Clique& c, const std::vector<OperationPtr>& ops, int64_t number) {
    std::string s = message("NCCL: the ranks differ in collective ", number, ":");
    for (int r = 0; r < c.count; r++) s += message(" rank ", r, " ", ops[size_t(r)] ? ops[size_t(r)]->text() : "not called yet", r + 1 < c.count ? ";" : "");
    return s;
}

/// Two devices must come to the collectives that they share, over all communicators, in one order.
void check_global_order(const ncclComm* comm, const Operation& o) {
    std::deque<Issued>& mine = issued_on_device[comm->device];
    const auto place = [](const std::deque<Issued>& list, const Issued& i) {
        return std::ranges::find_if(list, [&](const Issued& x) { return x.clique == i.clique && x.number == i.number; });
    };
    const Issued now{comm->clique.get(), o.number};
    for (const auto& [device, theirs] : issued_on_device) {
        const auto at = place(theirs, now);
        if (device == comm->device || at == theirs.end()) continue;
        for (auto later = at + 1; later != theirs.end(); ++later)
            if (later->clique != now.clique && place(mine, *later) != mine.end())
                break_clique(*comm->clique, message("NCCL: device ", comm->device, " calls ", o.text(), " after a collective of another communicator, device ",
                                                    device, " before it: the order of communicators must be the same on all devices"));
    }
    mine.push_back(now);
    if (mine.size() > 64) mine.pop_front();
}

void issue_collective(const ncclComm* comm, const OperationPtr& o) {
    Clique& c = *comm->clique;
    o->number = c.ranks[size_t(o->rank)].collectives++;
    std::vector<OperationPtr>& ops = c.collectives[o->number];
    ops.resize(size_t(c.count));
    ops[size_t(o->rank)] = o;
    for (const OperationPtr& other : ops) {
        if (!other || other == o) continue;
        if (!o->agrees_with(*other)) break_clique(c, all_sides(c, ops, o->number));
        if (other->thread == o->thread && other->batch != o->batch)
            break_clique(c, message("NCCL: one thread calls ", o->text(), " for ranks ", other->rank, " and ", o->rank,
                                    " outside of one group: this would deadlock (ncclGroupStart, ncclGroupEnd)"));
    }
    check_global_order(comm, *o);
}

void issue_point_to_point(const ncclComm* comm, const OperationPtr& o) {
    Clique& c = *comm->clique;
    Rank& self = c.ranks[size_t(o->rank)];
    Rank& peer = c.ranks[size_t(o->root)];
    // Of the peer's calls without a partner, the first that means this rank.
    std::deque<OperationPtr>& opposite = o->kind == Kind::send ? peer.receives : peer.sends;
    const auto match = std::ranges::find_if(opposite, [&](const OperationPtr& p) { return p->root == o->rank && p != o; });
    if (match == opposite.end()) {
        (o->kind == Kind::send ? self.sends : self.receives).push_back(o);
        return;
    }
    const OperationPtr partner = *match;
    opposite.erase(match);
    if (!o->agrees_with(*partner))
        break_clique(c, message("NCCL: rank ", o->rank, " calls ", o->text(), ", rank ", partner->rank, " ", partner->text()));
    o->partner = partner;
    partner->partner = o;
}

/// A Send or Recv of this group that can never find its partner: to itself, or where the group holds all ranks.
void check_unmatched(const std::vector<Call>& calls) {
    for (const Call& call : calls) {
        const Clique& c = *call.comm->clique;
        const auto in_group = [&](int rank) {
            return std::ranges::any_of(calls, [&](const Call& other) { return other.comm->clique.get() == &c && other.comm->rank == rank; });
        };
        bool whole = true;
        for (int r = 0; r < c.count; r++) whole &= in_group(r);
        for (const OperationPtr& o : c.ranks[size_t(call.comm->rank)].sends)
            if (o->root == o->rank || whole) break_clique(*call.comm->clique, message("NCCL: rank ", o->rank, " calls ", o->text(), " and nobody receives it"));
        for (const OperationPtr& o : c.ranks[size_t(call.comm->rank)].receives)
            if (o->root == o->rank || whole) break_clique(*call.comm->clique, message("NCCL: rank ", o->rank, " calls ", o->text(), " and nobody sends it"));
    }
}

/// Registers the calls of a group, in order, and makes one task for each communicator.
std::vector<std::pair<cudaStream_t, std::shared_ptr<Task>>> issue(std::vector<Call>& calls) {
    const uint64_t batch = next_batch++;
    std::vector<std::pair<cudaStream_t, std::shared_ptr<Task>>> tasks;
    for (Call& call : calls) {
        const auto o = std::make_shared<Operation>(std::move(call.operation));
        o->rank = call.comm->rank;
        o->thread = std::this_thread::get_id();
        o->batch = batch;
        call.comm->clique->ranks[size_t(o->rank)].under_way++;
        if (o->point_to_point()) issue_point_to_point(call.comm, o);
        else issue_collective(call.comm, o);
        auto task = std::ranges::find_if(tasks, [&](const auto& t) { return t.second->comm == call.comm; });
        if (task == tasks.end()) {
            const int delays = the_options.most_delay_microseconds > 0 ? int(random_bits(the_options.delay_seed, batch, uint64_t(o->rank)) % 3) : 0;
            tasks.push_back({call.stream, std::make_shared<Task>(Task{call.comm->clique, call.comm, {}, {}, delays, false})});
            task = tasks.end() - 1;
        }
        task->second->operations.push_back(o);
    }
    check_unmatched(calls);
    return tasks;
}

void delay(int rank) {
    if (the_options.most_delay_microseconds <= 0) return;
    const uint64_t random = random_bits(the_options.delay_seed, next_batch.load(), uint64_t(rank));
    std::this_thread::sleep_for(std::chrono::microseconds(random % uint64_t(the_options.most_delay_microseconds)));
}

void check_streams(const std::vector<Call>& calls) {
    for (const Call& call : calls) {
        fail_if(!call.stream && call.comm != calls[0].comm, ncclInvalidUsage, "a group of several ranks on the default stream is not emulated");
        for (const Call& other : calls)
            fail_if(other.comm == call.comm && other.stream != call.stream, ncclInvalidUsage, "a group that uses rank ", call.comm->rank,
                    " on two streams is not emulated");
    }
}

/// A call on a communicator that does not block is complete when it has been asked for.
void set_in_progress(ncclComm& comm) {
    comm.polls_left = 2;
    must_not_wait = "an NCCL call is still ncclInProgress: ask ncclCommGetAsyncError until it is not";
}

void submit(std::vector<Call> calls) {
    if (calls.empty()) return;
    check_streams(calls);
    delay(calls[0].comm->rank);
    std::vector<std::pair<cudaStream_t, std::shared_ptr<Task>>> tasks;
    {
        const std::lock_guard lock(state_lock);
        for (const Call& call : calls) check_usable(call.comm), check_complete(call.comm);
        tasks = issue(calls);
        for (const Call& call : calls)
            if (!call.comm->blocking) set_in_progress(*call.comm);
    }
    for (const auto& [stream, task] : tasks) {
        enqueue(stream, kind_names[int(task->operations[0]->kind)], [task = task] { return task->run(); });
    }
}

/// Runs a call that may fail; the text goes to the thread's last error.
template <class Work>
ncclResult_t answer(Work&& work) {
    try {
        return work();
    } catch (const Failure& f) {
        last_error = f.why;
        return f.result;
    }
}

/// Marks a communicator as used by this thread for the length of a call: NCCL has one thread on a communicator at a time.
struct InUse {
    ncclComm* comm;
    explicit InUse(ncclComm* c) : comm(c) {
        fail_if(comm->in_use.exchange(true), ncclInvalidUsage, "two threads use the communicator of rank ", comm->rank, " at the same time");
    }
    ~InUse() { comm->in_use = false; }
};

ncclResult_t call(ncclComm* comm, cudaStream_t stream, Operation o) {
    return answer([&] {
        {
            const std::lock_guard lock(state_lock);
            check_usable(comm);
        }
        const InUse use(comm);
        o.rank = comm->rank;
        check_arguments(comm, stream, o);
        fail_if(!group.joining.empty(), ncclInvalidUsage, "a group initialises communicators and calls ", o.text());
        if (group.depth > 0) group.calls.push_back({comm, stream, std::move(o)});
        else submit({{comm, stream, std::move(o)}});
        return comm->blocking ? ncclSuccess : ncclInProgress;
    });
}

// ---- Communicators -------------------------------------------------------------------------------------------------------------

constexpr char id_mark[] = "Clover SIMT NCCL";

std::shared_ptr<Clique> clique_of(const ncclUniqueId& id, int ranks) {
    uint64_t number = 0;
    fail_if(std::memcmp(id.internal, id_mark, sizeof id_mark) != 0, ncclInvalidArgument, "the unique id is not from ncclGetUniqueId");
    std::memcpy(&number, id.internal + 32, sizeof number);
    fail_if(number == 0 || number >= next_id, ncclInvalidArgument, "the unique id is not from ncclGetUniqueId");
    std::shared_ptr<Clique>& c = cliques[number];
    if (!c) c = std::make_shared<Clique>(Clique{number, ranks, std::vector<Rank>(size_t(ranks)), {}, {}});
    return c;
}

ncclComm* join(const ncclUniqueId& id, int ranks, int rank, bool blocking) {
    int device = 0;
    cudaGetDevice(&device);
    const std::lock_guard lock(state_lock);
    fail_if(ranks < 1 || rank < 0 || rank >= ranks, ncclInvalidArgument, "rank ", rank, " of ", ranks);
    const std::shared_ptr<Clique> c = clique_of(id, ranks);
    if (c->count != ranks) break_clique(*c, message("NCCL: rank ", rank, " says that there are ", ranks, " ranks, another ", c->count));
    if (c->ranks[size_t(rank)].joined) break_clique(*c, message("NCCL: rank ", rank, " comes twice"));
    for (int r = 0; r < ranks; r++)
        if (c->ranks[size_t(r)].joined && c->ranks[size_t(r)].device == device)
            break_clique(*c, message("NCCL: ranks ", r, " and ", rank, " are on one device, ", device));
    c->ranks[size_t(rank)].joined = true;
    c->ranks[size_t(rank)].device = device;
    joined.notify_all();
    all_communicators.push_back(std::make_unique<ncclComm>(c, rank, device, blocking));
    return all_communicators.back().get();
}

void wait_for_all(const ncclComm* comm) {
    std::unique_lock lock(state_lock);
    Clique& c = *comm->clique;
    const auto ready = [&] { return c.missing() == 0 || !c.broken.empty(); };
    if (!joined.wait_for(lock, std::chrono::duration<double>(the_options.timeout_seconds), ready)) {
        std::string missing;
        for (int r = 0; r < c.count; r++)
            if (!c.ranks[size_t(r)].joined) missing += message(missing.empty() ? "" : ", ", r);
        break_clique(c, message("NCCL: ncclCommInitRank of rank ", comm->rank, " has waited ", the_options.timeout_seconds, " s for ranks ", missing));
    }
    fail_if(!c.broken.empty(), ncclInvalidUsage, c.broken);
}

ncclResult_t initialise(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
    return answer([&] {
        fail_if(!comm, ncclInvalidArgument, "no place for the communicator");
        *comm = nullptr;
        fail_if(config && (config->magic != 0xcafebeef || config->size != sizeof *config), ncclInvalidArgument,
                "the configuration was not made by NCCL_CONFIG_INITIALIZER");
        fail_if(!group.calls.empty(), ncclInvalidUsage, "a group initialises communicators and calls operations");
        const bool blocking = !config || config->blocking != 0;
        delay(rank);
        *comm = join(id, ranks, rank, blocking);
        if (!blocking) {
            set_in_progress(**comm);
            return ncclInProgress;
        }
        if (group.depth > 0) group.joining.push_back({*comm});
        else wait_for_all(*comm);
        return ncclSuccess;
    });
}

ncclResult_t end(ncclComm* comm, const char* by) {
    return answer([&] {
        const std::lock_guard lock(state_lock);
        const bool abort = std::strcmp(by, "ncclCommAbort") == 0;
        fail_if(!comm, ncclInvalidArgument, "the communicator is null");
        fail_if(comm->ended && std::strcmp(comm->ended, "ncclCommFinalize") != 0, ncclInvalidUsage, by, " of rank ", comm->rank, " after ", comm->ended);
        if (!abort && !comm->ended) {
            check_usable(comm);
            const int64_t under_way = comm->clique->ranks[size_t(comm->rank)].under_way;
            fail_if(under_way > 0, ncclInvalidUsage, by, " of rank ", comm->rank, " while ", under_way,
                    " of its operations are under way: wait for the stream first");
        }
        comm->ended = by;
        if (group.depth == 0) must_not_wait = nullptr;
        comm->clique->ranks[size_t(comm->rank)].gone = true;
        return ncclSuccess;
    });
}

template <class Get>
ncclResult_t query(ncclComm* comm, int* value, Get get) {
    return answer([&] {
        const std::lock_guard lock(state_lock);
        check_usable(comm);
        fail_if(!value, ncclInvalidArgument, "no place for the answer");
        *value = get(*comm);
        return ncclSuccess;
    });
}

}  // namespace

NcclOptions& nccl_options() { return the_options; }

}  // namespace simt

// ---- The library's functions ---------------------------------------------------------------------------------------------------

using namespace simt;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
    static constexpr const char* texts[] = {"no error",
                                            "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                            "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                            "internal error - please report this issue to the NCCL developers",
                                            "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                            "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                            "remote process exited or there was a network error",
                                            "NCCL operation in progress"};
    return result >= 0 && result < ncclNumResults ? texts[result] : "unknown result code";
}
const char* ncclGetLastError(ncclComm_t comm) {
    const std::lock_guard lock(state_lock);
    if (comm && !comm->clique->broken.empty()) last_error = comm->clique->broken;
    return last_error.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    const std::lock_guard lock(state_lock);
    if (!id) return ncclInvalidArgument;
    *id = {};
    std::memcpy(id->internal, id_mark, sizeof id_mark);
    std::memcpy(id->internal + 32, &next_id, sizeof next_id);
    next_id++;
    return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) { return initialise(comm, nranks, id, rank, nullptr); }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    return initialise(comm, nranks, id, rank, config);
}
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* list) {
    int before = 0;
    cudaGetDevice(&before);
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclResult_t result = ncclGroupStart();
    for (int i = 0; i < devices && result == ncclSuccess; i++)
        result = cudaSetDevice(list ? list[i] : i) == cudaSuccess ? ncclCommInitRank(&comms[i], devices, id, i) : ncclUnhandledCudaError;
    const ncclResult_t ended = ncclGroupEnd();
    cudaSetDevice(before);
    return result == ncclSuccess ? ended : result;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return end(comm, "ncclCommFinalize"); }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return end(comm, "ncclCommDestroy"); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return end(comm, "ncclCommAbort"); }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    return answer([&] {
        const std::lock_guard lock(state_lock);
        fail_if(!comm || !error, ncclInvalidArgument, "no communicator, or no place for the answer");
        fail_if(comm->ended && std::strcmp(comm->ended, "ncclCommFinalize") != 0, ncclInvalidUsage, "rank ", comm->rank,
                " uses its communicator after ", comm->ended);
        if (!comm->clique->broken.empty()) {
            last_error = comm->clique->broken;
            *error = ncclInvalidUsage;
        } else if (comm->clique->missing() > 0 || comm->polls_left-- > 0)
            *error = ncclInProgress;
        else
            comm->polls_left = 0, *error = ncclSuccess;
        if (*error != ncclInProgress && group.depth == 0) must_not_wait = nullptr;
        return ncclSuccess;
    });
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
    return query(comm, count, [](const ncclComm& c) { return c.clique->count; });
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
    return query(comm, device, [](const ncclComm& c) { return c.device; });
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
    return query(comm, rank, [](const ncclComm& c) { return c.rank; });
}

ncclResult_t ncclGroupStart() {
    group.depth++;
    must_not_wait = "NCCL has an open group, whose calls come to the streams at ncclGroupEnd";
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    return answer([&] {
        fail_if(group.depth == 0, ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
        if (--group.depth > 0) return ncclSuccess;
        must_not_wait = nullptr;
        const std::vector<Call> calls = std::exchange(group.calls, {});
        const std::vector<Joining> joining = std::exchange(group.joining, {});
        for (const Joining& j : joining) wait_for_all(j.comm);
        const bool blocking = calls.empty() || calls[0].comm->blocking;
        submit(calls);
        return blocking ? ncclSuccess : ncclInProgress;
    });
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
    return call(comm, stream, {Kind::all_reduce, send, receive, count, type, op, 0});
}
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
    return call(comm, stream, {Kind::broadcast, send, receive, count, type, ncclSum, root});
}
ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                        cudaStream_t stream) {
    return call(comm, stream, {Kind::reduce, send, receive, count, type, op, root});
}
ncclResult_t ncclAllGather(const void* send, void* receive, size_t send_count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
    return call(comm, stream, {Kind::all_gather, send, receive, send_count, type, ncclSum, 0});
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t receive_count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
    return call(comm, stream, {Kind::reduce_scatter, send, receive, receive_count, type, op, 0});
}
ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return call(comm, stream, {Kind::send, send, nullptr, count, type, ncclSum, peer});
}
ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return call(comm, stream, {Kind::receive, nullptr, receive, count, type, ncclSum, peer});
}

}  // extern "C"
