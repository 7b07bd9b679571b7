/*!
 * \file kernels/moe/expert_rows.h
 * \brief The rows of a mixture of experts, sorted by expert.
 */
#ifndef AIOMLC_KERNELS_MOE_EXPERT_ROWS_H_
#define AIOMLC_KERNELS_MOE_EXPERT_ROWS_H_

#include <cstdint>
#include <vector>

#include "kernels/linear/base/linear_kernels.h"
#include "kernels/moe/experts.h"

namespace aiomlc {

/*! \brief A panel of rows of one expert; see kPanelRows. */
struct ExpertPanel {
  int64_t begin = 0;   //!< The index of its first assignment.
  int64_t height = 0;  //!< kPanelRows, or less for an expert's last panel.
};

/*!
 * \brief The assignments of rows to experts, sorted by expert and then by row.
 *
 * Each row has one assignment per selected expert. The memory is reused by later calls.
 */
class ExpertRows {
 public:
  /*! \brief Select the experts of all rows of a call, and sort the assignments. */
  void Assign(ThreadPool& pool, const ExpertsCall& call);

  int64_t num_assignments() const { return static_cast<int64_t>(row_.size()); }
  int64_t row(int64_t assignment) const { return row_[assignment]; }
  /*! \return The weight of the expert's output in the sum of the row. */
  float weight(int64_t assignment) const { return weight_[assignment]; }

  /*! \return The experts with at least one row, ascending. */
  const std::vector<int64_t>& experts() const { return experts_; }
  /*! \return The first assignment of an expert. */
  int64_t begin(int64_t expert) const { return begin_[expert]; }
  /*! \return The number of assignments of an expert. */
  int64_t count(int64_t expert) const { return begin_[expert + 1] - begin_[expert]; }

  const std::vector<ExpertPanel>& panels() const { return panels_; }

 private:
  void Sort(const ExpertsCall& call);
  void FindPanels();

  std::vector<int32_t> selected_;  // [rows, experts_per_row]
  std::vector<float> selected_weight_;
  std::vector<int64_t> row_;     // Of each assignment.
  std::vector<float> weight_;    // Of each assignment.
  std::vector<int64_t> begin_;   // [num_experts + 1]
  std::vector<int64_t> insert_;  // [num_experts + 1], the next free assignment of each expert.
  std::vector<int64_t> experts_;
  std::vector<ExpertPanel> panels_;
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_MOE_EXPERT_ROWS_H_
