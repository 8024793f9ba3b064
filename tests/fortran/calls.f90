! Calls every function of the Fortran module, and compares the results with those of one process.
!
!   calls      (under mpirun, 2 to 4 ranks)
module callbacks
  use ftsort
  implicit none
  integer(c_int), parameter :: accepted = 0
  integer(c_size_t) :: consumed = 0
  integer :: events = 0

  type, bind(c) :: star
    integer(c_int32_t) :: number
    real(c_float) :: magnitude
    character(kind=c_char) :: name(8)
  end type

contains

  ! Descending order of `number`.
  integer(c_int) function compare(user, a, b) bind(c)
    type(c_ptr), value :: user, a, b
    type(star), pointer :: one, other
    call c_f_pointer(a, one)
    call c_f_pointer(b, other)
    compare = merge(1, merge(-1, 0, one%number > other%number), one%number < other%number)
    if (c_associated(user)) compare = 0
  end function

  ! Fills a part of the source: the numbers from 1000 down to 1.
  integer(c_int) function read_part(user, position, buffer, bytes) bind(c)
    type(c_ptr), value :: user, buffer
    integer(c_int64_t), value :: position
    integer(c_size_t), value :: bytes
    integer(c_int32_t), pointer :: part(:)
    integer(c_size_t) :: i
    call c_f_pointer(buffer, part, [bytes / 4])
    do i = 1, bytes / 4
      part(i) = int(1001 - position / 4 - i, c_int32_t)
    end do
    read_part = merge(1, 0, c_associated(user))
  end function

  ! Checks a part of the output: the numbers from 1 to 1000.
  integer(c_int) function write_part(user, position, data, bytes) bind(c)
    type(c_ptr), value :: user, data
    integer(c_int64_t), value :: position
    integer(c_size_t), value :: bytes
    integer(c_int32_t), pointer :: part(:)
    integer(c_size_t) :: i
    call c_f_pointer(data, part, [bytes / 4])
    write_part = merge(1, 0, c_associated(user))
    do i = 1, bytes / 4
      if (part(i) /= position / 4 + i) write_part = 2
    end do
  end function

  subroutine on_event(user, event) bind(c)
    type(c_ptr), value :: user
    type(ftsort_event), intent(in) :: event
    if (.not. c_associated(user) .and. event%kind == FTSORT_EVENT_ROUND) events = events + 1
  end subroutine

  integer(c_int) function consume(user, records, count) bind(c)
    type(c_ptr), value :: user, records
    integer(c_size_t), value :: count
    consume = merge(accepted, 1, c_associated(records) .and. .not. c_associated(user))
    consumed = consumed + count
  end function

  integer(c_int64_t) function test() bind(c)
    test = 42
  end function

  ! Adds the message to the state. The first round copies, and the second one changes the message in place.
  integer(c_int) function absorb(user, task, inbox, bytes, next) bind(c)
    type(c_ptr), value :: user, inbox, next
    type(ftsort_task), intent(in) :: task
    integer(c_size_t), value :: bytes
    integer(c_int64_t), pointer :: before, message, after
    integer(c_size_t) :: size
    call c_f_pointer(task%state, before)
    call c_f_pointer(inbox, message)
    if (task%round == 1) then
      call c_f_pointer(ftsort_buffer_resize(next, bytes), after)
      after = before + message
    else
      call c_f_pointer(ftsort_buffer_reuse(next, size), after)
      after = before + after
    end if
    absorb = merge(accepted, 1, .not. c_associated(user))
  end function

  integer(c_int) function emit(user, task, outbox) bind(c)
    type(c_ptr), value :: user, outbox
    type(ftsort_task), intent(in) :: task
    if (task%round == 1 .or. c_associated(user)) then
      emit = ftsort_buffer_pass(outbox, 0_c_size_t, task%state_bytes)
    else
      emit = ftsort_buffer_append(outbox, task%state, task%state_bytes)
    end if
  end function

  integer(c_int) function begin(user, node, state) bind(c)
    type(c_ptr), value :: user, state
    integer(c_int32_t), value :: node
    begin = merge(accepted, 1, c_associated(ftsort_buffer_resize(state, 8_c_size_t)))
    if (node < 0 .or. c_associated(user)) begin = 1
  end function
end module

program calls
  use callbacks
  implicit none
  integer, parameter :: count = 3000
  integer(c_size_t), parameter :: n = count, star_bytes = 16
  type(star), target :: stars(count)
  real(c_double), target :: numbers(count)
  integer(c_int32_t) :: me, ranks
  integer :: comm, i
  type(c_ptr) :: g, group, result
  type(ftsort_config), target :: config

  call expect(ftsort_prepare() == FTSORT_OK, "ftsort_prepare")
  call ftsort_allow_faults()
  comm = ftsort_mpi_init()
  config = ftsort_config_init()
  config%on_event = c_funloc(on_event)
  call ok(ftsort_init(comm, c_loc(config), g), "ftsort_init")
  me = ftsort_rank(g)
  ranks = ftsort_ranks(g)
  do i = 1, count
    numbers(i) = modulo(real(i, c_double) * 7919 + me * 31, 1009.0_c_double)
    stars(i)%number = me * count + i
    stars(i)%magnitude = real(numbers(i), c_float)
    stars(i)%name = c_null_char
    stars(i)%name(1) = achar(iachar("a") + modulo(i, 26))
  end do
  call texts
  call groups_without_a_time_limit
  call sorts
  call queries
  call external_sorts
  call rounds_and_trees
  call failures_and_states
  call ok(ftsort_group_of(comm, group), "ftsort_group_of")
  call ftsort_free(group)
  if (me == 0) print "(a)", "calls: fine"
  flush (6)
  call ok(ftsort_leave(g, 0), "ftsort_leave")

contains

  subroutine expect(holds, text)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: text
    if (holds) return
    print "(2a)", "not true: ", text
    flush (6)
    error stop 1
  end subroutine

  subroutine ok(status, text)
    integer(c_int32_t), intent(in) :: status
    character(len=*), intent(in) :: text
    if (status /= FTSORT_OK) call expect(.false., text // ": " // ftsort_error_text(g))
  end subroutine

  ! Checks the total of a result, and releases it.
  subroutine has_total(total, text)
    integer(c_int64_t), intent(in) :: total
    character(len=*), intent(in) :: text
    call expect(ftsort_result_total(result) == total, text)
    call ftsort_result_free(result)
  end subroutine

  subroutine texts
    integer(c_int) :: major, minor, patch
    type(ftsort_block) :: block
    call ftsort_version(major, minor, patch)
    call expect(major == FTSORT_VERSION_MAJOR .and. minor == FTSORT_VERSION_MINOR, "ftsort_version")
    call expect(patch == FTSORT_VERSION_PATCH, "the patch number")
    call expect(index(ftsort_text(ftsort_build_info()), "ftsort") > 0, "ftsort_build_info")
    call expect(len(ftsort_text(ftsort_status_text(FTSORT_ERR_MEMORY))) > 0, "ftsort_status_text")
    call expect(len(ftsort_text(ftsort_last_error(g))) == 0, "ftsort_last_error")
    call expect(ftsort_result_block(c_null_ptr, 0_c_size_t, block) == FTSORT_ERR_ARGUMENT, "a NULL result")
  end subroutine

  ! Groups that are repaired by shrinking have no time limit, and refuse one.
  subroutine groups_without_a_time_limit
    type(ftsort_config), target :: unlimited
    unlimited = ftsort_config_init()
    unlimited%repair = FTSORT_REPAIR_SHRINK
    unlimited%timeout_ms = FTSORT_NO_TIMEOUT
    call ok(ftsort_init(comm, c_loc(unlimited), group), "FTSORT_NO_TIMEOUT")
    call ftsort_free(group)
    unlimited%timeout_ms = 1000
    call expect(ftsort_init(comm, c_loc(unlimited), group) == FTSORT_ERR_ARGUMENT, "a time limit that is refused")
  end subroutine

  ! Returns the record of a star, sorted by a member.
  function by(offset, bytes, key) result(record)
    integer(c_size_t), intent(in) :: offset, bytes
    integer(c_int32_t), intent(in) :: key
    type(ftsort_record) :: record
    record%struct_size = c_sizeof(record)
    record%record_bytes = star_bytes
    record%key_offset = offset
    record%key_bytes = bytes
    record%key = key
  end function

  subroutine sorts
    type(ftsort_record), target :: record
    type(ftsort_key_part), target :: parts(2)
    type(ftsort_array), target :: arrays(2)
    type(ftsort_stats) :: stats
    type(c_ptr) :: input, results(2)
    real(c_double), pointer :: sorted(:)
    integer(c_int64_t) :: violations
    integer :: k
    call ok(ftsort_sort(comm, numbers, result), "ftsort_sort")
    do i = 1, int(ftsort_result_count(result))
      call ftsort_values(result, i, sorted)
      do k = 2, size(sorted)
        call expect(sorted(k - 1) <= sorted(k), "numbers in order")
      end do
    end do
    call has_total(int(ranks, c_int64_t) * n, "all numbers")
    call generic_kinds
    call other_sizes
    call different_kinds
    record = by(0_c_size_t, 0_c_size_t, FTSORT_KEY_COMPARE)
    record%compare = c_funloc(compare)
    call ok(ftsort_run(g, record, c_loc(stars), n, result), "ftsort_run")
    call ok(ftsort_result_verify(g, result, c_loc(stars), n, violations), "ftsort_result_verify")
    call expect(violations == 0, "no violations")
    call ok(ftsort_result_recover(g, result), "ftsort_result_recover")
    call has_total(int(ranks, c_int64_t) * n, "all stars")
    call expect(events > 0, "events")
    parts(1) = ftsort_key_part(8, 8, FTSORT_KEY_TEXT, 1)
    parts(2) = ftsort_key_part(0, 4, FTSORT_KEY_I32, 0)
    record = by(0_c_size_t, 0_c_size_t, FTSORT_KEY_LIST)
    record%parts = c_loc(parts)
    record%part_count = 2
    call ok(ftsort_protect(g, record, c_loc(stars), n, input), "ftsort_protect")
    call ok(ftsort_run_protected(g, input, c_null_ptr, result), "ftsort_run_protected")
    call has_total(int(ranks, c_int64_t) * n, "the protected stars")
    call ok(ftsort_input_update(g, input, c_loc(stars), 10_c_size_t), "ftsort_input_update")
    record = by(4_c_size_t, 4_c_size_t, FTSORT_KEY_F32)
    call ok(ftsort_run_protected(g, input, c_loc(record), result), "another key")
    call has_total(int(ranks, c_int64_t) * 10, "the replaced stars")
    call ftsort_input_free(input)
    call ok(ftsort_set_algorithm(g, FTSORT_QUICKMERGE, FTSORT_PIVOT_SAMPLED), "ftsort_set_algorithm")
    call ok(ftsort_run(g, record, c_loc(stars), n, result), "QuickMerge")
    call ftsort_result_free(result)
    stats = ftsort_stats_init()
    call ok(ftsort_get_stats(g, stats), "ftsort_get_stats")
    call expect(stats%algorithm == FTSORT_QUICKMERGE, "the algorithm")
    call ok(ftsort_set_algorithm(g, FTSORT_AUTO, FTSORT_PIVOT_SAMPLED), "the default algorithm")
    do i = 1, 2
      arrays(i) = ftsort_array(c_loc(record), c_loc(stars), n / i)
    end do
    call ok(ftsort_run_many(g, arrays, 2_c_size_t, results), "ftsort_run_many")
    do i = 1, 2
      result = results(i)
      call has_total(int(ranks, c_int64_t) * n / i, "an array of many")
    end do
    call ok(ftsort_result_of_array(g, by(0_c_size_t, 4_c_size_t, FTSORT_KEY_I32), c_loc(stars), n, result), &
            "ftsort_result_of_array")
    call ok(ftsort_result_verify(g, result, c_null_ptr, 0_c_size_t, violations), "a sorted array")
    call expect(violations == 0, "an array in order")
    call ftsort_result_free(result)
  end subroutine

  ! The other kinds of numbers; a negative number comes first.
  subroutine generic_kinds
    integer(c_int8_t), target :: bytes(3) = [3_c_int8_t, -1_c_int8_t, 2_c_int8_t]
    integer(c_int16_t), target :: shorts(3) = [3_c_int16_t, -1_c_int16_t, 2_c_int16_t]
    integer(c_int32_t), target :: integers(3) = [3_c_int32_t, -1_c_int32_t, 2_c_int32_t]
    integer(c_int64_t), target :: longs(3) = [3_c_int64_t, -1_c_int64_t, 2_c_int64_t]
    real(c_float), target :: reals(3) = [3.0, -1.0, 2.0]
    integer(c_int8_t), pointer :: found8(:)
    integer(c_int16_t), pointer :: found16(:)
    integer(c_int32_t), pointer :: found32(:)
    integer(c_int64_t), pointer :: found64(:)
    real(c_float), pointer :: found_real(:)
    call ok(ftsort_run(g, bytes, result), "8 bits")
    call ftsort_values(result, 1, found8)
    if (me == 0) call expect(found8(1) == -1, "8 bits in order")
    call has_total(3_c_int64_t * ranks, "8 bits")
    call ok(ftsort_run(g, shorts, result), "16 bits")
    call ftsort_values(result, 1, found16)
    if (me == 0) call expect(found16(1) == -1, "16 bits in order")
    call has_total(3_c_int64_t * ranks, "16 bits")
    call ok(ftsort_sort(comm, integers, result), "32 bits")
    call ftsort_values(result, 1, found32)
    if (me == 0) call expect(found32(1) == -1, "32 bits in order")
    call has_total(3_c_int64_t * ranks, "32 bits")
    call ok(ftsort_run(g, longs, result), "64 bits")
    call ftsort_values(result, 1, found64)
    if (me == 0) call expect(found64(1) == -1, "64 bits in order")
    call has_total(3_c_int64_t * ranks, "64 bits")
    call ok(ftsort_run(g, reals, result), "reals")
    call ftsort_values(result, 1, found_real)
    if (me == 0) call expect(found_real(1) < 0, "reals in order")
    call has_total(3_c_int64_t * ranks, "reals")
  end subroutine

  ! A pointer to numbers of another size than that of the elements has none; one to bytes has as many as fit.
  subroutine other_sizes
    integer(c_int32_t), target :: integers(3) = [3_c_int32_t, 1_c_int32_t, 2_c_int32_t]
    integer(c_int8_t), target :: bytes(20) = 1_c_int8_t
    integer(c_int8_t), pointer :: found8(:)
    integer(c_int32_t), pointer :: found32(:)
    real(c_double), pointer :: found(:)
    call ok(ftsort_run(g, integers, result), "integers")
    call ftsort_values(result, 1, found)
    call expect(size(found) == 0, "no numbers of 64 bits in a result of 32 bits")
    call ftsort_values(result, 1, found8)
    call expect(size(found8) == 0, "no numbers of 8 bits in a result of 32 bits")
    call ftsort_values(result, 5, found32)
    call expect(size(found32) == 0, "no numbers in a block that does not exist")
    call has_total(3_c_int64_t * ranks, "integers")
    call ok(ftsort_run(g, bytes, result), "bytes")
    call ftsort_values(result, 1, found8)
    call ftsort_values(result, 1, found32)
    call expect(size(found32) == size(found8) / 4, "bytes as numbers of 32 bits")
    call has_total(20_c_int64_t * ranks, "bytes")
  end subroutine

  ! A sort of an array without a group of the caller has its error text.
  subroutine different_kinds
    integer(c_int32_t) :: integers(3), status
    character(len=:), allocatable :: text, text_of_group
    type(c_ptr) :: group
    integers = 1
    if (me == 0) then
      status = ftsort_sort(comm, integers, result)
    else
      status = ftsort_sort(comm, numbers, result)
    end if
    text = ftsort_error_text(c_null_ptr)
    call expect(status == FTSORT_ERR_ARGUMENT, "different kinds of numbers are an error")
    call ok(ftsort_group_of(comm, group), "ftsort_group_of")
    text_of_group = ftsort_error_text(group)
    call expect(len(text) > 0 .and. text == text_of_group, "the error text of a sort without a group")
  end subroutine

  subroutine queries
    integer(c_int32_t), parameter :: keys(6) = [FTSORT_KEY_I8, FTSORT_KEY_I16, FTSORT_KEY_I32, FTSORT_KEY_I64, &
                                                FTSORT_KEY_F32, FTSORT_KEY_F64]
    integer, parameter :: key_bytes(6) = [1, 2, 4, 8, 4, 8]
    type(ftsort_record) :: record, of_type
    type(ftsort_aggregate) :: aggregates(1)
    type(star), target :: found(1)
    type(c_ptr) :: column
    integer(c_size_t) :: bytes
    record = ftsort_record_of(numbers)
    call ok(ftsort_sort_by_key(g, record, c_loc(numbers), c_loc(stars), star_bytes, n, result), "ftsort_sort_by_key")
    call expect(ftsort_result_columns(result) == 2, "ftsort_result_columns")
    call ok(ftsort_result_column(result, 0_c_size_t, 1_c_size_t, column, bytes), "ftsort_result_column")
    call expect(bytes == star_bytes .and. c_associated(column), "the column of values")
    call has_total(int(ranks, c_int64_t) * n, "all keys")
    call ok(ftsort_argsort(g, record, c_loc(numbers), n, result), "ftsort_argsort")
    call has_total(int(ranks, c_int64_t) * n, "all positions")
    call ok(ftsort_positions(g, record, c_loc(numbers), n, result), "ftsort_positions")
    call ftsort_result_free(result)
    record = by(0_c_size_t, 4_c_size_t, FTSORT_KEY_I32)
    call ok(ftsort_select(g, record, c_loc(stars), n, [int(count, c_int64_t)], 1_c_size_t, c_loc(found)), "ftsort_select")
    call expect(found(1)%number == count + 1, "the selected star")
    call ok(ftsort_quantiles(g, record, c_loc(stars), n, [1.0_c_double], 1_c_size_t, c_loc(found)), "ftsort_quantiles")
    call expect(found(1)%number == ranks * count, "the last star")
    call ok(ftsort_top(g, record, c_loc(stars), n, 7_c_int64_t, result), "ftsort_top")
    call has_total(7_c_int64_t, "the first stars")
    record = by(8_c_size_t, 8_c_size_t, FTSORT_KEY_TEXT)
    call ok(ftsort_unique(g, record, c_loc(stars), n, result), "ftsort_unique")
    call has_total(26_c_int64_t, "the letters")
    aggregates(1) = ftsort_aggregate(FTSORT_SUM, FTSORT_KEY_F32, 4)
    call ok(ftsort_group_by(g, record, aggregates, 1_c_size_t, c_loc(stars), n, result), "ftsort_group_by")
    call has_total(26_c_int64_t, "the groups")
    do i = 1, size(keys)
      call ok(ftsort_record_of_type(ftsort_mpi_type(keys(i)), of_type), "ftsort_record_of_type")
      call expect(of_type%key == keys(i) .and. of_type%record_bytes == key_bytes(i), "the record of a type")
    end do
    call ok(ftsort_sort(comm, c_loc(numbers), n, ftsort_mpi_type(FTSORT_KEY_F64), result), "ftsort_sort by a type")
    call has_total(int(ranks, c_int64_t) * n, "the numbers of a type")
  end subroutine

  ! The program sorts 1000 numbers that `read_part` provides, and `write_part` receives.
  subroutine external_sorts
    type(ftsort_record) :: record
    type(ftsort_external) :: files
    type(ftsort_external_stats), target :: stats
    character(kind=c_char), target :: folder(5)
    type(c_ptr), target :: folders(1)
    integer(c_int32_t) :: none(1)
    folder = [character(kind=c_char) :: "/", "t", "m", "p", c_null_char]
    folders(1) = c_loc(folder)
    record = ftsort_record_of(none)
    files = ftsort_external_init()
    files%scratch = c_loc(folders)
    files%scratch_count = 1
    files%memory_bytes = 8192
    files%read = c_funloc(read_part)
    files%bytes = 4000
    files%write = c_funloc(write_part)
    stats = ftsort_external_stats_init()
    call ok(ftsort_external_sort(g, record, files, c_loc(stats)), "ftsort_external_sort")
    call expect(stats%records == 1000 .and. stats%batches > 0, "the figures of an external sort")
  end subroutine

  subroutine rounds_and_trees
    type(ftsort_rounds) :: rounds
    type(ftsort_tree_options), target :: options
    type(ftsort_tree_info) :: info
    integer(c_int64_t) :: first, count
    type(ftsort_simulation_options), target :: simulation
    integer(c_int64_t), target :: state, states(4) = [1, 2, 3, 4]
    integer(c_int64_t), pointer :: sum, sums(:)
    type(ftsort_block) :: block
    type(c_ptr) :: addresses(4)
    rounds = ftsort_rounds_init()
    rounds%absorb = c_funloc(absorb)
    rounds%emit = c_funloc(emit)
    rounds%begin = c_funloc(begin)
    state = me + 1
    call ok(ftsort_rounds_run(g, rounds, c_loc(state), 8_c_size_t, result), "ftsort_rounds_run")
    call ok(ftsort_result_block(result, 0_c_size_t, block), "ftsort_result_block")
    call c_f_pointer(block%data, sum)
    call expect(sum == ranks * (ranks + 1) / 2, "the sum")
    call expect(block%count == 8, "the bytes of the sum")
    call ftsort_values(result, 1, sums)
    call expect(size(sums) == 1 .and. sums(1) == sum, "the sum as a number")
    call ftsort_result_free(result)
    simulation = ftsort_simulation_options_init()
    simulation%failures = 1
    simulation%store = FTSORT_STORE_RELOAD
    do i = 1, 4
      addresses(i) = c_loc(states(i))
    end do
    call ok(ftsort_rounds_simulate(rounds, c_loc(simulation), addresses, spread(8_c_size_t, 1, 4), result), &
            "ftsort_rounds_simulate")
    call ok(ftsort_result_block(result, 0_c_size_t, block), "a simulated block")
    call c_f_pointer(block%data, sum)
    call expect(sum == 10, "the simulated sum")
    call ftsort_result_free(result)
    options = ftsort_tree_options_init()
    options%has_sink = 1
    options%operation = FTSORT_TREE_SUM
    options%key = FTSORT_KEY_I64
    call ok(ftsort_tree_share(g, c_loc(options), 1000_c_int64_t, first, count), "ftsort_tree_share")
    call expect(first == 1000 * me / ranks .and. first + count == 1000 * (me + 1) / ranks, "the share")
    call ok(ftsort_tree_merge(g, c_loc(options), c_loc(state), 8_c_size_t, result), "ftsort_tree_merge")
    call expect(c_associated(result) .eqv. me == 0, "the sink")
    call ftsort_result_free(result)
    info = ftsort_tree_info_init()
    call ok(ftsort_tree_get_info(g, info), "ftsort_tree_get_info")
    call expect(info%executor == 0, "the executor of the sink")
    call ok(ftsort_tree_broadcast(g, c_loc(options), 1, c_loc(state), 8_c_size_t), "ftsort_tree_broadcast")
    call expect(state == 2, "the copied state")
    call ok(ftsort_run(g, numbers, result), "a sort to be gathered")
    call ok(ftsort_gather_sorted(g, c_loc(options), result, c_funloc(consume), c_null_ptr), "ftsort_gather_sorted")
    call expect(consumed == merge(ranks * n, 0_c_size_t, me == 0), "all records")
    call ftsort_result_free(result)
  end subroutine

  subroutine failures_and_states
    integer(c_size_t) :: new_failures, bytes
    integer(c_int32_t) :: flags, nodes(2)
    integer(c_int32_t), target :: state
    integer(c_int) :: survivors, committed, found
    character(kind=c_char), target :: name(2) = ["n", c_null_char]
    integer(c_int64_t) :: sent, answered
    type(c_ptr) :: kept, monitor
    type(ftsort_monitor_options), target :: options
    type(ftsort_monitor_view) :: known
    type(ftsort_record) :: record
    call ok(ftsort_fault_check(g, new_failures), "ftsort_fault_check")
    flags = 255 - me
    call ok(ftsort_agree(g, flags, new_failures), "ftsort_agree")
    call expect(new_failures == 0 .and. flags <= 254, "the agreed flags")
    call ok(ftsort_comm(g, survivors), "ftsort_comm")
    call expect(ftsort_comm_rank(g, me) == me .and. survivors /= comm, "ftsort_comm_rank")
    call expect(ftsort_is_failed(g, me) == 0, "ftsort_is_failed")
    call expect(ftsort_is_spare(g, me) == 0, "ftsort_is_spare")
    call expect(ftsort_executor(g, me) == me, "ftsort_executor")
    call expect(ftsort_partner(g, 0, 0) == 1, "ftsort_partner")
    call expect(ftsort_lost_ranks(g, nodes, 2_c_size_t) == 0, "ftsort_lost_ranks")
    call expect(ftsort_cluster(0, 1, nodes, 2_c_size_t) == 2, "ftsort_cluster")
    call expect(all(nodes == [2, 3]), "the nodes of a cluster")
    call expect(ftsort_dimension(g) >= 1, "ftsort_dimension")
    call ok(ftsort_inject(g, 0), "ftsort_inject")
    call expect(ftsort_store_open(g, c_loc(name), found) == FTSORT_ERR_ARGUMENT, "a name without a directory")
    record = by(4_c_size_t, 4_c_size_t, FTSORT_KEY_F32)
    call expect(ftsort_run_stored(g, record, c_loc(stars), n, result) == FTSORT_ERR_STATE, "a result without a name")
    state = me
    call ok(ftsort_store_put(g, me, c_loc(state), 4_c_size_t), "ftsort_store_put")
    call ok(ftsort_store_commit(g, 1, committed), "ftsort_store_commit")
    call ok(ftsort_store_get(g, me, kept, bytes), "ftsort_store_get")
    call expect(committed == 1 .and. bytes == 4 .and. c_associated(kept), "the committed state")
    call ok(ftsort_store_clear(g), "ftsort_store_clear")
    options = ftsort_monitor_options_init()
    options%mode = FTSORT_MONITOR_FOREGROUND
    options%test = c_funloc(test)
    call ok(ftsort_monitor_start(g, c_loc(options), monitor), "ftsort_monitor_start")
    known = ftsort_monitor_view_init()
    call ok(ftsort_monitor_get_view(monitor, 0, known), "ftsort_monitor_get_view")
    call expect(known%recommended == 1, "a recommended rank")
    call expect(ftsort_monitor_cost(monitor, sent, answered) == 0, "ftsort_monitor_cost")
    call ok(ftsort_monitor_stop(g), "ftsort_monitor_stop")
  end subroutine
end program
